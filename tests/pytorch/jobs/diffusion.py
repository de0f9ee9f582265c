"""Trains diffusers' UNet2DModel to predict noise."""

import argparse

import torch
from diffusers import DDPMScheduler, UNet2DModel

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--image-size", type=int, default=64)
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--bf16", action="store_true")
args = parser.parse_args()

model = UNet2DModel(
    sample_size=args.image_size,
    block_out_channels=(128, 128, 256, 256, 512, 512),
    down_block_types=("DownBlock2D",) * 4 + ("AttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "AttnUpBlock2D") + ("UpBlock2D",) * 4,
).cuda()
scheduler = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(args.steps):
    clean = torch.randn(args.batch_size, 3, args.image_size, args.image_size).cuda()
    noise = torch.randn_like(clean)
    times = torch.randint(0, 1000, (args.batch_size,), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=args.bf16):
        predicted = model(scheduler.add_noise(clean, noise, times), times).sample
        loss = torch.nn.functional.mse_loss(predicted.float(), noise)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
print("loss", loss.item())
