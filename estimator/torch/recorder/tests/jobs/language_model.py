"""A causal language model: the job whose rows vramcalc 0.1.2 measured on an RTX A6000.

    python language_model.py ROW

ROW is the number of a line of `../data/vramcalc_a6000.jsonl`. It prints weights, states, peak and total in
bytes, as `torch.cuda`'s counters have them, in the order in which vramcalc's benchmark reads them.
"""

import contextlib
import gc
import json
import pathlib
import sys

import peft
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, masking_utils

# transformers 4.57.6, with which the rows were measured, always made the mask of a causal model. Version 5 leaves
# it out where it need not be, except while it traces.
masking_utils.is_tracing = lambda tensor=None: True

ROWS = pathlib.Path(__file__).parent.parent / "data" / "vramcalc_a6000.jsonl"
row = json.loads(ROWS.read_text().splitlines()[int(sys.argv[1])])
arch = row["arch"]
dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[row["dtype"]]
autocast = row["mode"] == "train" and row["precision"] == "amp"
config_type = Qwen2Config if row["model"].startswith("Qwen") else LlamaConfig
config = config_type(
    hidden_size=arch["hidden_size"],
    num_hidden_layers=arch["num_layers"],
    num_attention_heads=arch["num_heads"],
    num_key_value_heads=arch["num_kv_heads"],
    head_dim=arch["head_dim"],
    intermediate_size=arch["intermediate_size"],
    vocab_size=arch["vocab_size"],
    tie_word_embeddings=arch["tie_word_embeddings"],
)


def reset():
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def attention():
    if row["attn_impl"] != "sdpa":
        return contextlib.nullcontext()
    return sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION])


reset()
model = AutoModelForCausalLM.from_config(
    config, dtype=torch.float32 if autocast else dtype, attn_implementation=row["attn_impl"]
)
for module in model.modules():
    # A buffer since version 5, and so on the card: 512 bytes. Before it was not.
    module._buffers.pop("original_inv_freq", None)
model = model.cuda()
if row["lora_rank"] is not None:
    targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
    rank = row["lora_rank"]
    model = peft.get_peft_model(
        model,
        peft.LoraConfig(r=rank, lora_alpha=rank, lora_dropout=0.0, target_modules=targets, task_type="CAUSAL_LM"),
    )
weights = torch.cuda.memory_allocated()
ids = torch.randint(0, arch["vocab_size"], (row["batch"], row["seq_len"]), device="cuda")
if row["mode"] == "inference":
    model.eval()
    reset()
    with torch.inference_mode(), attention():
        out = model(input_ids=ids, use_cache=True)
    peak, states = torch.cuda.max_memory_allocated() - weights, 0
else:
    model.train()
    model.config.use_cache = False
    if row["grad_checkpoint"]:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-5, foreach=True)

    def step():
        context = torch.autocast("cuda", dtype=dtype) if autocast else contextlib.nullcontext()
        with attention():
            with context:
                out = model(input_ids=ids, labels=ids, use_cache=False)
                loss = out.loss
            loss.backward()
        del out, loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    step()
    baseline = torch.cuda.memory_allocated()
    states, peak = baseline - weights, 0
    for _ in range(2):
        reset()
        step()
        peak = max(peak, torch.cuda.max_memory_allocated() - baseline)
result = {"weights": weights, "states": states, "peak": peak, "total": weights + states + peak}
print(json.dumps(result))
