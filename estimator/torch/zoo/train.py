"""A training step of a network of the zoo, as public packages define it: `train.py NAME BATCH PRECISION`.

Names, sizes and optimizers are those of `fit-check models`. Inputs are zeros: their values decide no size.
`record.py` runs this under the recorder, which makes a fork for each step that is asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: A network, what makes a batch for it, and what makes a loss of both.
Job = tuple[nn.Module, Callable[[int], tuple], Callable[[nn.Module, tuple], Tensor]]


def indices(*shape: int) -> Tensor:
    """Words or classes."""
    return torch.zeros(shape, dtype=torch.int64)


def classifier(network: nn.Module, pixels: int) -> Job:
    def batch(count: int) -> tuple:
        return torch.zeros(count, 3, pixels, pixels), indices(count)

    def loss(network: nn.Module, data: tuple) -> Tensor:
        output = network(data[0])
        return F.cross_entropy(getattr(output, "logits", output), data[1])

    return network, batch, loss


def vision(name: str, pixels: int = 224) -> Job:
    import torchvision

    # A network of patches is built for images of one size.
    arguments = {"image_size": pixels} if name.startswith("vit") else {}
    network = torchvision.models.get_model(name, weights=None, **arguments)
    network.definition = {"torchvision": name, "arguments": arguments}
    return classifier(network, pixels)


def segmentation(name: str) -> Job:
    import torchvision

    arguments = {"weights_backbone": None, "aux_loss": True}
    network = torchvision.models.get_model(
        name, weights=None, num_classes=21, **arguments
    )
    network.definition = {"torchvision": name, "arguments": arguments}

    def batch(count: int) -> tuple:
        return torch.zeros(count, 3, 480, 480), indices(count, 480, 480)

    def loss(network: nn.Module, data: tuple) -> Tensor:
        output = network(data[0])
        return F.cross_entropy(output["out"], data[1]) + 0.5 * F.cross_entropy(
            output["aux"], data[1]
        )

    return network, batch, loss


def nasnet() -> Job:
    import timm

    network = timm.create_model("nasnetalarge", num_classes=1000)
    network.definition = {"architecture": "nasnetalarge", "num_classes": 1000}
    return classifier(network, 331)


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
            # As in the paper, each layer ends with a normalisation, and no other one comes after the last.
            self.transformer.encoder.norm = self.transformer.decoder.norm = None

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
        return indices(count, length), indices(count, length + 1)

    def loss(network: nn.Module, data: tuple) -> Tensor:
        logits = network(data[0], data[1][:, :-1])
        return F.cross_entropy(logits.reshape(-1, words), data[1][:, 1:].reshape(-1))

    return Translation(), batch, loss


def language(network: nn.Module, length: int, classifies: bool = False) -> Job:
    """A model of transformers: it classifies texts, or predicts words."""

    def batch(count: int) -> tuple:
        inputs = indices(count, length)
        return inputs, indices(count) if classifies else inputs

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
    return language(transformers.BertForSequenceClassification(config), 128, True)


def modernbert(large: bool) -> Job:
    import transformers

    sizes = {
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "intermediate_size": 2624,
    }
    config = transformers.ModernBertConfig(num_labels=2, **(sizes if large else {}))
    return language(transformers.ModernBertForSequenceClassification(config), 128, True)


def swin(width: int, depth: int, heads: int) -> Job:
    import transformers

    config = transformers.SwinConfig(
        embed_dim=width,
        depths=[2, 2, depth, 2],
        num_heads=[heads, 2 * heads, 4 * heads, 8 * heads],
        num_labels=1000,
    )
    return classifier(transformers.SwinForImageClassification(config), 224)


def gpt2(embedding: int, layers: int, heads: int) -> Job:
    import transformers

    config = transformers.GPT2Config(
        n_embd=embedding, n_layer=layers, n_head=heads, use_cache=False
    )
    return language(transformers.GPT2LMHeadModel(config), 1024)


def decoder(
    family: str,
    words: int,
    widths: tuple[int, int],
    layers: int,
    heads: tuple[int, int],
    length: int = 2048,
    tied: bool = False,
    **more: object,
) -> Job:
    """A language model of transformers: its widths are of a word and within the feed-forward block, its heads those of queries
    and of keys."""
    import transformers

    kind = getattr(
        transformers, family + ("TextConfig" if family == "Gemma3" else "Config")
    )
    config = kind(
        vocab_size=words,
        hidden_size=widths[0],
        intermediate_size=widths[1],
        num_hidden_layers=layers,
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        max_position_embeddings=length,
        tie_word_embeddings=tied,
        use_cache=False,
        **more,
    )
    return language(getattr(transformers, family + "ForCausalLM")(config), length)


def gemma_3(
    words: int,
    widths: tuple[int, int],
    layers: int,
    heads: tuple[int, int],
    window: int,
) -> Job:
    """Gemma 3, whose local layers see a window."""
    return decoder(
        "Gemma3",
        words,
        widths,
        layers,
        heads,
        tied=True,
        head_dim=256,
        sliding_window=window,
    )


#: Language models: the class of transformers, and the sizes of `config.json`.
DECODERS: dict[str, Callable[[], Job]] = {
    "tinyllama-1.1b": lambda: decoder("Llama", 32000, (2048, 5632), 22, (32, 4)),
    "llama-2-7b": lambda: decoder("Llama", 32000, (4096, 11008), 32, (32, 32), 4096),
    "llama-3.2-1b": lambda: decoder(
        "Llama", 128256, (2048, 8192), 16, (32, 8), tied=True
    ),
    "llama-3.2-3b": lambda: decoder(
        "Llama", 128256, (3072, 8192), 28, (24, 8), tied=True
    ),
    "llama-3.1-8b": lambda: decoder("Llama", 128256, (4096, 14336), 32, (32, 8)),
    "qwen2.5-0.5b": lambda: decoder(
        "Qwen2", 151936, (896, 4864), 24, (14, 2), tied=True
    ),
    "qwen2.5-1.5b": lambda: decoder(
        "Qwen2", 151936, (1536, 8960), 28, (12, 2), tied=True
    ),
    "qwen2.5-7b": lambda: decoder("Qwen2", 152064, (3584, 18944), 28, (28, 4)),
    "qwen3-0.6b": lambda: decoder(
        "Qwen3", 151936, (1024, 3072), 28, (16, 8), tied=True, head_dim=128
    ),
    "qwen3-1.7b": lambda: decoder(
        "Qwen3", 151936, (2048, 6144), 28, (16, 8), tied=True, head_dim=128
    ),
    "qwen3-4b": lambda: decoder(
        "Qwen3", 151936, (2560, 9728), 36, (32, 8), tied=True, head_dim=128
    ),
    "qwen3-8b": lambda: decoder(
        "Qwen3", 151936, (4096, 12288), 36, (32, 8), head_dim=128
    ),
    "mistral-7b-v0.3": lambda: decoder(
        "Mistral", 32768, (4096, 14336), 32, (32, 8), sliding_window=None
    ),
    "gemma-2b": lambda: decoder(
        "Gemma", 256000, (2048, 16384), 18, (8, 1), tied=True, head_dim=256
    ),
    "gemma-2-2b": lambda: decoder(
        "Gemma2", 256000, (2304, 9216), 26, (8, 4), tied=True, head_dim=256
    ),
    "gemma-3-270m": lambda: gemma_3(262144, (640, 2048), 18, (4, 1), 512),
    "gemma-3-1b": lambda: gemma_3(262144, (1152, 6912), 26, (4, 1), 512),
    "gemma-3-4b-text": lambda: gemma_3(262208, (2560, 10240), 34, (8, 4), 1024),
    "phi-3-mini": lambda: decoder("Phi3", 32064, (3072, 8192), 32, (32, 32)),
    "phi-4-mini": lambda: decoder(
        "Phi3", 200064, (3072, 8192), 32, (24, 8), tied=True, partial_rotary_factor=0.75
    ),
    "olmo-2-1b": lambda: decoder("Olmo2", 100352, (2048, 8192), 16, (16, 16)),
    "smollm3-3b": lambda: decoder(
        "SmolLM3", 128256, (2048, 11008), 36, (16, 4), tied=True
    ),
}

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
    "modernbert-base": (lambda: modernbert(False), "adamw"),
    "modernbert-large": (lambda: modernbert(True), "adamw"),
    "convnext-tiny": (lambda: vision("convnext_tiny"), "adamw"),
    "convnext-base": (lambda: vision("convnext_base"), "adamw"),
    "swin-tiny": (lambda: swin(96, 6, 3), "adamw"),
    "swin-base": (lambda: swin(128, 18, 4), "adamw"),
    **{name: (build, "adamw") for name, build in DECODERS.items()},
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


def train(arguments: list[str]) -> None:
    name, count, precision = arguments
    build, optimizer_name = ZOO[name]
    # The weights of the largest do not fit into the memory of most machines.
    with torch.device("cuda"):
        network, batch, loss_of = build()
    network.train()
    update = optimizer(optimizer_name, network)
    for _ in range(3):
        data = tuple(tensor.cuda() for tensor in batch(int(count)))
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "mixed"):
            loss = loss_of(network, data)
        loss.backward()
        update.step()
        update.zero_grad()


def prepare(arguments: list[str]) -> None:
    """Import what defines the network."""
    with torch.device("meta"):
        ZOO[arguments[0]][0]()


if __name__ == "__main__":
    if "FIT_CHECK_REQUESTS" in os.environ:
        from fit_check_recorder import forks

        forks.serve(prepare, train)
    else:
        train(sys.argv[1:])
