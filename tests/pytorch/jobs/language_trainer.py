"""Trains a language model with Hugging Face's Trainer on random tokens."""

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)


class Tokens(Dataset):
    def __init__(self, vocabulary: int, length: int, classify: bool) -> None:
        self.vocabulary, self.length, self.classify = vocabulary, length, classify

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict:
        tokens = torch.randint(0, self.vocabulary, (self.length,))
        labels = index % 2 if self.classify else tokens
        return {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "labels": labels,
        }


def llama(args: argparse.Namespace) -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=args.layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
        tie_word_embeddings=True,
        attn_implementation=args.attention,
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model


def quantize(model: torch.nn.Module) -> None:
    import bitsandbytes as bnb

    for name, layer in list(model.named_modules()):
        if isinstance(layer, torch.nn.Linear) and "lm_head" not in name:
            parent = model.get_submodule(name.rpartition(".")[0])
            new = bnb.nn.Linear4bit(
                layer.in_features, layer.out_features, bias=False,
                compute_dtype=torch.bfloat16, quant_type="nf4", device="cpu",
            )  # fmt: skip
            new.weight = bnb.nn.Params4bit(
                layer.weight.data.cpu(),
                requires_grad=False,
                quant_type="nf4",
                module=new,
            )
            setattr(parent, name.rpartition(".")[2], new.cuda())
            del layer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=["bert", "gpt2", "llama"])
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--precision", choices=["fp32", "fp16", "bf16"], default="fp32")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
    parser.add_argument("--optimizer", default="adamw_torch")
    parser.add_argument("--lora", type=int)
    parser.add_argument("--four-bit", action="store_true")
    parser.add_argument("--checkpointing", action="store_true")
    args = parser.parse_args()

    if args.model == "bert":
        model = BertForSequenceClassification(
            BertConfig(attn_implementation=args.attention)
        )
    elif args.model == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(attn_implementation=args.attention))
    else:
        model = llama(args)
    if args.four_bit:
        quantize(model)
    if args.lora:
        from peft import LoraConfig, get_peft_model

        config = LoraConfig(
            r=args.lora, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"
        )
        model = get_peft_model(model, config)
        if args.checkpointing:
            model.enable_input_require_grads()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=args.batch_size,
            gradient_accumulation_steps=args.accumulate,
            max_steps=args.steps,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            fp16=args.precision == "fp16",
            bf16=args.precision == "bf16",
            optim=args.optimizer,
            gradient_checkpointing=args.checkpointing,
        )
        data = Tokens(model.config.vocab_size, args.length, args.model == "bert")
        Trainer(model=model, args=arguments, train_dataset=data).train()


main()
