"""ResNet-50 with Adam: `python resnet.py BATCH AMP`."""

import sys

import torch
import torchvision

batch, amp = int(sys.argv[1]), bool(int(sys.argv[2]))
model = torchvision.models.resnet50().cuda()
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda", enabled=amp)
for _ in range(10):
    images = torch.randn(batch, 3, 224, 224).cuda()
    labels = torch.randint(0, 1000, (batch,)).cuda()
    optimizer.zero_grad()
    with torch.autocast("cuda", enabled=amp):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
