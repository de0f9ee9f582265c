"""Trains a network of timm: the jobs whose memory was measured on an A100 and an RTX 3090.

    python timm_training.py a100 MODEL BATCH
    python timm_training.py rtx-3090 MODEL BATCH IMAGE nchw|nhwc

`a100` is what timm's train.py does by default: float32, SGD, smoothed labels, and a loader that prepares the next batch
on a stream of its own. `rtx-3090` is the training of timm's benchmark.py under PyTorch 1.12: autocast, one batch that
stays, gradients that are set to zero. Both have cudnn.benchmark.
"""

import sys

import timm
import torch
from timm.data.loader import PrefetchLoader
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2

STEPS = 3
kind, name, batch = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.backends.cudnn.benchmark = True


def train():
    model = timm.create_model(name).cuda().train()
    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.01, momentum=0.9, weight_decay=2e-5)
    _, height, width = model.default_cfg["input_size"]

    class Batches:
        sampler = None

        def __iter__(self):
            for _ in range(STEPS):
                images = torch.zeros(batch, 3, height, width, dtype=torch.uint8)
                yield images, torch.zeros(batch, dtype=torch.long)

        def __len__(self):
            return STEPS

    criterion = LabelSmoothingCrossEntropy(0.1).cuda()
    for images, labels in PrefetchLoader(Batches()):
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def benchmark(image, layout):
    # PyTorch 1.12 had no fused attention.
    timm.layers.set_fused_attn(False)
    layout = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    model = timm.create_model(name).to(device="cuda", memory_format=layout).train()
    optimizer = create_optimizer_v2(model, opt="sgd", lr=1e-4, foreach=False)
    images = torch.randn(batch, 3, image, image, device="cuda").contiguous(memory_format=layout)
    criterion = torch.nn.CrossEntropyLoss().cuda()
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cuda", dtype=torch.float16):
            labels = torch.empty(batch, device="cuda", dtype=torch.long).random_(model.num_classes)
            criterion(model(images), labels).backward()
        optimizer.step()


if kind == "a100":
    train()
else:
    benchmark(int(sys.argv[4]), sys.argv[5])
