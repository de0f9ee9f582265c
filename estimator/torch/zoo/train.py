"""A training step of a network of the zoo, as public packages define it: `train.py NAME BATCH PRECISION`.

Names, sizes and optimizers are those of `fit-check models`. `record.py` runs this under the recorder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: A network, what makes a batch for it, and what makes a loss of both.
Job = tuple[nn.Module, Callable[[int], tuple], Callable[[nn.Module, tuple], Tensor]]


def classifier(network: nn.Module, pixels: int, classes: int = 1000) -> Job:
    def batch(count: int) -> tuple:
        return torch.randn(count, 3, pixels, pixels), torch.randint(classes, (count,))

    def loss(network: nn.Module, data: tuple) -> Tensor:
        output = network(data[0])
        return F.cross_entropy(getattr(output, "logits", output), data[1])

    return network, batch, loss


def vision(name: str, pixels: int = 224) -> Job:
    import torchvision

    return classifier(getattr(torchvision.models, name)(), pixels)


def segmentation(name: str) -> Job:
    import torchvision

    models = torchvision.models.segmentation
    network = getattr(models, name)(
        weights=None, weights_backbone=None, num_classes=21, aux_loss=True
    )

    def batch(count: int) -> tuple:
        return torch.randn(count, 3, 480, 480), torch.randint(21, (count, 480, 480))

    def loss(network: nn.Module, data: tuple) -> Tensor:
        output = network(data[0])
        return F.cross_entropy(output["out"], data[1]) + 0.5 * F.cross_entropy(
            output["aux"], data[1]
        )

    return network, batch, loss


def nasnet() -> Job:
    import timm

    return classifier(timm.create_model("nasnetalarge", num_classes=1000), 331)


def transformer(dimension: int, heads: int, inner: int) -> Job:
    """The translation model of "Attention Is All You Need", with nn.Transformer and one table of 32,768 words."""
    words, length = 32768, 32

    class Translation(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(words, dimension)
            self.transformer = nn.Transformer(
                dimension, heads, 6, 6, inner, batch_first=True
            )

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(
                target.shape[1], device=target.device
            )
            output = self.transformer(
                self.embedding(source),
                self.embedding(target),
                tgt_mask=mask,
                tgt_is_causal=True,
            )
            return output @ self.embedding.weight.T

    def batch(count: int) -> tuple:
        return torch.randint(words, (count, length)), torch.randint(
            words, (count, length + 1)
        )

    def loss(network: nn.Module, data: tuple) -> Tensor:
        logits = network(data[0], data[1][:, :-1])
        return F.cross_entropy(logits.reshape(-1, words), data[1][:, 1:].reshape(-1))

    return Translation(), batch, loss


def language(
    network: nn.Module, words: int, length: int, labels: int | None = None
) -> Job:
    """A model of transformers: with `labels` it classifies texts, else it predicts words."""

    def batch(count: int) -> tuple:
        inputs = torch.randint(words, (count, length))
        return inputs, inputs if labels is None else torch.randint(labels, (count,))

    def loss(network: nn.Module, data: tuple) -> Tensor:
        return network(input_ids=data[0], labels=data[1]).loss

    return network, batch, loss


def bert(large: bool) -> Job:
    import transformers

    sizes = {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    }
    config = transformers.BertConfig(num_labels=2, **(sizes if large else {}))
    return language(transformers.BertForSequenceClassification(config), 30522, 128, 2)


def gpt2(embedding: int, layers: int, heads: int) -> Job:
    import transformers

    config = transformers.GPT2Config(n_embd=embedding, n_layer=layers, n_head=heads)
    return language(transformers.GPT2LMHeadModel(config), 50257, 1024)


def llama(length: int, **sizes: int) -> Job:
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=32000, max_position_embeddings=length, use_cache=False, **sizes
    )
    return language(transformers.LlamaForCausalLM(config), 32000, length)


#: The networks: what builds each, and its optimizer.
ZOO: dict[str, tuple[Callable[[], Job], str]] = {
    **{
        f"resnet-{n}": ((lambda n=n: vision(f"resnet{n}")), "momentum")
        for n in (18, 34, 50, 101, 152)
    },
    **{f"vgg-{n}": ((lambda n=n: vision(f"vgg{n}")), "momentum") for n in (16, 19)},
    **{
        f"vgg-{n}-bn": ((lambda n=n: vision(f"vgg{n}_bn")), "momentum")
        for n in (16, 19)
    },
    "alexnet": (lambda: vision("alexnet"), "momentum"),
    "mobilenet-v2": (lambda: vision("mobilenet_v2"), "rmsprop"),
    "efficientnet-b0": (lambda: vision("efficientnet_b0"), "rmsprop"),
    "vit-b-16": (lambda: vision("vit_b_16"), "adamw"),
    "deeplabv3-r50": (lambda: segmentation("deeplabv3_resnet50"), "momentum"),
    "deeplabv3-r101": (lambda: segmentation("deeplabv3_resnet101"), "momentum"),
    "nasnet-a-large": (nasnet, "rmsprop"),
    "transformer-base": (lambda: transformer(512, 8, 2048), "adam"),
    "transformer-big": (lambda: transformer(1024, 16, 4096), "adam"),
    "bert-base": (lambda: bert(False), "adamw"),
    "bert-large": (lambda: bert(True), "adamw"),
    "gpt2": (lambda: gpt2(768, 12, 12), "adamw"),
    "gpt2-medium": (lambda: gpt2(1024, 24, 16), "adamw"),
    "gpt2-large": (lambda: gpt2(1280, 36, 20), "adamw"),
    "gpt2-xl": (lambda: gpt2(1600, 48, 25), "adamw"),
    "tinyllama-1.1b": (
        lambda: llama(
            2048,
            hidden_size=2048,
            intermediate_size=5632,
            num_hidden_layers=22,
            num_attention_heads=32,
            num_key_value_heads=4,
        ),
        "adamw",
    ),
    "llama-2-7b": (
        lambda: llama(
            4096,
            hidden_size=4096,
            intermediate_size=11008,
            num_hidden_layers=32,
            num_attention_heads=32,
            num_key_value_heads=32,
        ),
        "adamw",
    ),
}


def optimizer(name: str, network: nn.Module) -> torch.optim.Optimizer:
    parameters = network.parameters()
    match name:
        case "momentum":
            return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
        case "rmsprop":
            return torch.optim.RMSprop(parameters, lr=0.01, momentum=0.9)
        case "adam":
            return torch.optim.Adam(parameters, lr=1e-4)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=1e-4)
    raise ValueError(name)


def main(name: str, count: int, precision: str) -> None:
    build, optimizer_name = ZOO[name]
    # The weights of the largest do not fit into the memory of most machines.
    with torch.device("cuda"):
        network, batch, loss_of = build()
    network.train()
    update = optimizer(optimizer_name, network)
    for _ in range(3):
        data = tuple(tensor.cuda() for tensor in batch(count))
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "mixed"):
            loss = loss_of(network, data)
        loss.backward()
        update.step()
        update.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
