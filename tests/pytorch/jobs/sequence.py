"""Trains nn.Transformer or nn.LSTM on random tokens."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=["transformer", "lstm"])
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--length", type=int, default=128)
parser.add_argument("--vocabulary", type=int, default=32000)
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--amp", action="store_true")
args = parser.parse_args()


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.source = nn.Embedding(args.vocabulary, 512)
        self.target = nn.Embedding(args.vocabulary, 512)
        self.body = nn.Transformer(512, 8, 6, 6, 2048, batch_first=True)
        self.head = nn.Linear(512, args.vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(
            tokens.shape[1], tokens.device
        )
        return self.head(
            self.body(self.source(tokens), self.target(tokens), tgt_mask=mask)
        )


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(args.vocabulary, 512)
        self.body = nn.LSTM(
            512, 512, 2, batch_first=True, bidirectional=True, dropout=0.1
        )
        self.head = nn.Linear(1024, args.vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embedding(tokens))[0])


model = (Translator() if args.model == "transformer" else Tagger()).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(args.steps):
    tokens = torch.randint(0, args.vocabulary, (args.batch_size, args.length)).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=args.amp):
        output = model(tokens)
        loss = nn.functional.cross_entropy(output.flatten(0, 1), tokens.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
