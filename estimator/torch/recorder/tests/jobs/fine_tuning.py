"""A training step whose rows torch-preflight 0.5.0 measured on a Tesla T4: AdamW, autocast, two steps.

    python fine_tuning.py ROW

ROW is the number of a line of `../data/torch_preflight_t4.jsonl`.
It prints the most allocated bytes of the second step.
"""

import json
import pathlib
import sys

import torch
import torchvision
import transformers

ROWS = pathlib.Path(__file__).parent.parent / "data" / "torch_preflight_t4.jsonl"
row = json.loads(ROWS.read_text().splitlines()[int(sys.argv[1])])
batch, size = row["batch"], row["size"]

build = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config()),
    "distilbert-base-uncased": lambda: transformers.DistilBertModel(transformers.DistilBertConfig()),
    "bert-base-uncased": lambda: transformers.BertModel(transformers.BertConfig()),
    "resnet50": torchvision.models.resnet50,
}[row["model"]]

# The harness multiplied and convolved before its first row, so cuBLAS has its workspace already.
square = torch.randn(256, 256, device="cuda")
(square @ square).sum().item()
del square
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()

model = build().cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
if row["model"] == "resnet50":
    inputs = torch.randn(batch, 3, size, size, device="cuda")
    labels = torch.randint(0, 1000, (batch,), device="cuda")
else:
    inputs = torch.randint(0, model.config.vocab_size - 1, (batch, size), device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    # A T4 says that it supports bfloat16: it is emulated.
    with torch.autocast("cuda", dtype=torch.bfloat16):
        if row["model"] == "resnet50":
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        else:
            # The output lives until the step is over, with its logits and what the layers cached.
            output = model(input_ids=inputs, labels=inputs) if row["model"] == "gpt2" else model(input_ids=inputs)
            loss = output.loss if row["model"] == "gpt2" else output.last_hidden_state.float().pow(2).mean()
    loss.backward()
    optimizer.step()


step()
torch.cuda.reset_peak_memory_stats()
step()
print(torch.cuda.max_memory_allocated())
