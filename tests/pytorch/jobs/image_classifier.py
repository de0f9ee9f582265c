"""Trains an image classifier of torchvision or timm on random images."""

import argparse

import torch
from torch import nn


def build(name: str, classes: int) -> nn.Module:
    if name.startswith("timm/"):
        import timm

        return timm.create_model(name.removeprefix("timm/"), num_classes=classes)
    import torchvision

    return torchvision.models.get_model(name, num_classes=classes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--optimizer", choices=["adam", "adamw", "sgd"], default="adam")
    parser.add_argument("--amp", choices=["fp16", "bf16"])
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--benchmark", action="store_true")
    parser.add_argument("--skip-updates", action="store_true")
    args = parser.parse_args()

    torch.backends.cudnn.benchmark = args.benchmark
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    model = build(args.model, args.classes).cuda().to(memory_format=layout).train()
    optimizer = {
        "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
        "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    }[args.optimizer](model.parameters())
    criterion = nn.CrossEntropyLoss()
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16, None: None}[args.amp]
    scaler = torch.amp.GradScaler("cuda", enabled=args.amp == "fp16")
    if args.skip_updates:
        # What a card finds in the gradients is not known without one.
        scaler._maybe_opt_step = lambda optimizer, state, *args, **kwargs: None
    for _ in range(args.steps):
        size = (args.batch_size, 3, args.image_size, args.image_size)
        images = torch.randn(size).cuda().contiguous(memory_format=layout)
        labels = torch.randint(0, args.classes, (args.batch_size,)).cuda()
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
            output = model(images)
            output = (
                output[0]
                if isinstance(output, tuple)
                else getattr(output, "logits", output)
            )
            loss = criterion(output, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    print("loss", loss.item())


main()
