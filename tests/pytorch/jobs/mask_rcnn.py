"""Trains torchvision's Mask R-CNN on random images with two objects each."""

import argparse

import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=2)
parser.add_argument("--image-size", type=int, default=640)
parser.add_argument("--steps", type=int, default=3)
args = parser.parse_args()

size = args.image_size
model = torchvision.models.detection.maskrcnn_resnet50_fpn(
    weights=None, weights_backbone=None, min_size=size, max_size=size
).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
for _ in range(args.steps):
    images = [torch.rand(3, size, size).cuda() for _ in range(args.batch_size)]
    boxes = torch.tensor([[20.0, 30.0, 250.0, 300.0], [100.0, 80.0, 500.0, 410.0]])
    masks = torch.zeros(2, size, size, dtype=torch.uint8)
    targets = [
        {
            "boxes": boxes.cuda(),
            "labels": torch.tensor([1, 7]).cuda(),
            "masks": masks.cuda(),
        }
        for _ in images
    ]
    loss = sum(model(images, targets).values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
