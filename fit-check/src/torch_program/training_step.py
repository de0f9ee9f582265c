"""A standard training step of a network of a public package, for `fit-check estimate MODEL --framework pytorch`.

fit-check runs this file with the Python of the person who asks, under its recorder, whose `forks` makes a process
for each step that is asked for. A `config.json` defines the network: one of transformers or of timm, or
`{"torchvision": NAME}`. Its weights are never read, since their values decide no size. It is what this
loop takes:

    model = ModelClass(config).cuda()
    for batch in batches:
        with torch.autocast("cuda", torch.bfloat16, enabled=mixed):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

The cache of keys and values is off, as transformers' Trainer has it. A network of images is trained to tell classes. An
error is one line on stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

#: More than the recorder needs: it ends this program as soon as two steps make the same allocations.
STEPS = 12

#: What helps where this step does not serve.
PROGRAM = "fit-check run --gpu CARD -- python train.py follows a program of yours"

#: Names of projections that people type, and what networks of transformers call them.
TARGETS = {
    "q": ("q_proj", "query", "q_lin", "c_attn", "Wqkv", "qkv_proj"),
    "k": ("k_proj", "key", "k_lin"),
    "v": ("v_proj", "value", "v_lin"),
    "o": ("o_proj", "out_proj", "out_lin"),
    "gate": ("gate_proj", "gate_up_proj"),
    "up": ("up_proj", "gate_up_proj"),
    "down": ("down_proj",),
}


def refuse(message: str, hint: str = "") -> NoReturn:
    """End with a line for the error, and one for the hint."""
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(2)


def options(arguments: list[str]) -> argparse.Namespace:
    """What fit-check asks for (`commands/torch/path.rs`)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--seq", type=int)
    parser.add_argument("--image", help="HEIGHTxWIDTH")
    parser.add_argument("--classes", type=int)
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16", "fp16", "mixed"))
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--attention")
    parser.add_argument("--freeze", action="append", default=[])
    parser.add_argument("--lora", type=int)
    parser.add_argument("--lora-targets")
    parser.add_argument("--lora-base", choices=("4bit",))
    return parser.parse_args(arguments)


def check_packages(needed: list[str]) -> None:
    """Refuse if a package is missing, and say how to install it."""
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        refuse(
            f"{sys.executable} has no {names}",
            f"{sys.executable} -m pip install {' '.join(missing)}; or --python PATH names a Python that has them",
        )


def definition(asked: argparse.Namespace) -> dict[str, Any]:
    """What defines the network: a `config.json`, or the one in a folder."""
    path = asked.config
    with open(os.path.join(path, "config.json") if os.path.isdir(path) else path, encoding="utf-8") as file:
        return json.load(file)


def library(defined: dict[str, Any]) -> str:
    """The package that builds the network."""
    if "torchvision" in defined:
        return "torchvision"
    return "timm" if "architecture" in defined and "model_type" not in defined else "transformers"


#: The types of the weights; those of autocast are fp32.
FORMATS = {"bf16": "bfloat16", "fp16": "float16"}


def configuration(asked: argparse.Namespace) -> tuple[type[torch.nn.Module], Any]:
    """The class of the network, and its configuration."""
    import transformers

    kwargs = {"attn_implementation": asked.attention} if asked.attention else {}
    try:
        config = transformers.AutoConfig.from_pretrained(asked.config, **kwargs)
    except (OSError, ValueError, KeyError) as error:
        refuse(
            f"transformers {transformers.__version__} does not read the configuration: {error}",
            "a newer transformers may; a network with code of its own: fit-check run --gpu CARD -- python train.py",
        )
    if hasattr(config, "use_cache"):
        config.use_cache = False
    if asked.classes:
        config.num_labels = asked.classes
    return model_class(transformers, config), config


def on_card(asked: argparse.Namespace, name: str, build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """The network that `build` makes, on the card, in training."""
    import torch

    torch.set_default_dtype(getattr(torch, FORMATS.get(asked.precision, "float32")))
    try:
        with torch.device("cuda"):
            model = build()
    except (ImportError, ValueError, TypeError, RuntimeError) as error:
        refuse(f"{name}: {error}", PROGRAM)
    torch.set_default_dtype(torch.float32)
    return model.train()


def of_torchvision(asked: argparse.Namespace, defined: dict[str, Any]) -> torch.nn.Module:
    """The network on the card, in training."""
    import torchvision

    arguments = {"weights": None, **defined.get("arguments", {})}
    if asked.classes:
        arguments["num_classes"] = asked.classes
    if "image_size" in arguments:
        arguments["image_size"] = sides(asked)[0]
    name = defined["torchvision"]
    return on_card(asked, name, lambda: torchvision.models.get_model(name, **arguments))


def of_timm(asked: argparse.Namespace, defined: dict[str, Any]) -> torch.nn.Module:
    """The network on the card, in training."""
    import timm

    name = defined["architecture"]
    arguments = dict(defined.get("model_args") or {})
    classes = asked.classes or defined.get("num_classes")
    if classes is not None:
        arguments["num_classes"] = classes
    usual = timm.get_pretrained_cfg(name)
    if usual and usual.fixed_input_size:
        arguments["img_size"] = sides(asked)
    return on_card(asked, name, lambda: timm.create_model(name, **arguments))


def of_transformers(asked: argparse.Namespace, _defined: dict[str, Any]) -> torch.nn.Module:
    """The network on the card, in training."""
    kind, config = configuration(asked)
    if asked.lora_base:
        return quantized(asked, kind, config)
    return on_card(asked, kind.__name__, lambda: kind(config))


#: What builds a network of each package.
BUILDERS = {"transformers": of_transformers, "timm": of_timm, "torchvision": of_torchvision}


def check_options(asked: argparse.Namespace, package: str) -> None:
    """Refuse what a network that is not of transformers does not have."""
    if package == "transformers":
        return
    if asked.attention:
        refuse(f"--attention is for networks of transformers, not of {package}", "leave it out")
    if asked.lora_base:
        refuse(f"--lora-base is for networks of transformers, not of {package}", "leave it out")
    if asked.checkpointing and package == "torchvision":
        refuse("torchvision's networks have no checkpointing of their own", PROGRAM)


def quantized(asked: argparse.Namespace, kind: type[torch.nn.Module], config: Any) -> torch.nn.Module:
    """The network with its projections in 4 bits (nf4) by bitsandbytes, loaded as `from_pretrained` does.

    Its weights are a file with a hole in place of their values, which takes no disk.
    """
    import peft
    import torch
    import transformers

    dtype = getattr(torch, FORMATS.get(asked.precision, "float32"))
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"weights-{os.getpid()}")
    with torch.device("meta"):
        empty = kind(config).state_dict(keep_vars=True)
    config.architectures = [kind.__name__]
    config.save_pretrained(folder)
    write_weights(os.path.join(folder, "model.safetensors"), empty, dtype)
    del empty
    how = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    attention = {"attn_implementation": asked.attention} if asked.attention else {}
    model = kind.from_pretrained(folder, quantization_config=how, device_map={"": 0}, dtype=dtype, **attention)
    shutil.rmtree(folder)
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False
    # The recipe of peft's guide for quantized weights: what is not quantized becomes fp32.
    return peft.prepare_model_for_kbit_training(model.train(), use_gradient_checkpointing=False)


def write_weights(path: str, tensors: dict[str, torch.Tensor], dtype: torch.dtype) -> None:
    """A safetensors file with these shapes; a tensor that has two names is there once."""
    import torch

    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.bool: "BOOL"}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    known: set[int] = set()
    end = 0
    for name, tensor in tensors.items():
        if id(tensor) in known:
            continue
        known.add(id(tensor))
        kind = dtype if tensor.is_floating_point() else tensor.dtype
        begin, end = end, end + tensor.numel() * kind.itemsize
        header[name] = {"dtype": names[kind], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def model_class(transformers: Any, config: Any) -> type[torch.nn.Module]:
    """The class that the configuration names; without one, that of a language model."""
    names = config.architectures or []
    for name in names:
        kind = getattr(transformers, name, None)
        if kind is not None:
            return kind
    known = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    if not names and type(config) in known:
        return known[type(config)]
    named = names[0] if names else f"class for model_type {config.model_type}"
    refuse(
        f"transformers {transformers.__version__} has no {named}",
        "a newer transformers may; a network with code of its own: fit-check run --gpu CARD -- python train.py",
    )


def with_adapters(model: torch.nn.Module, asked: argparse.Namespace) -> torch.nn.Module:
    """The network with frozen weights and low-rank adapters."""
    import peft
    import torch

    targets: Any = None
    if asked.lora_targets:
        leaves = {path.rpartition(".")[2] for path, _ in model.named_modules()}
        typed = [name.strip() for name in asked.lora_targets.split(",")]
        targets = [name for short in typed for name in TARGETS.get(short, (short,)) if name in leaves]
        missing = [short for short in typed if not leaves & set(TARGETS.get(short, (short,)))]
        if missing:
            linear = sorted(
                {
                    path.rpartition(".")[2]
                    for path, module in model.named_modules()
                    if isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"
                }
            )
            refuse(f"--lora-targets: there is no projection {', '.join(missing)}", f"there are {', '.join(linear)}")
    try:
        return peft.get_peft_model(model, peft.LoraConfig(r=asked.lora, target_modules=targets))
    except ValueError as error:
        refuse(f"peft: {error}", "--lora-targets names the projections: q,v or their names in the network")


def freeze(model: torch.nn.Module, prefixes: list[str]) -> None:
    """Train no parameter below these paths."""
    for prefix in prefixes:
        below = [p for path, p in model.named_parameters() if path == prefix or path.startswith(f"{prefix}.")]
        if not below:
            children = ", ".join(path for path, _ in model.named_children())
            refuse(f"--freeze {prefix}: there is no parameter below it", f"there are {children}")
        for parameter in below:
            parameter.requires_grad_(False)


def optimizer(name: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimizer of this name, with PyTorch's defaults."""
    import torch

    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        refuse("no parameter is trained", "freeze less")
    match name:
        case "sgd":
            return torch.optim.SGD(parameters, lr=0.01)
        case "momentum":
            return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
        case "adam":
            return torch.optim.Adam(parameters, lr=1e-4)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=1e-4)
        case "rmsprop":
            return torch.optim.RMSprop(parameters, lr=0.01, momentum=0.9)
        case "adagrad":
            return torch.optim.Adagrad(parameters, lr=0.01)
        case "adafactor":
            return torch.optim.Adafactor(parameters)
        case "adamw8bit" | "pagedadamw8bit":
            import bitsandbytes

            kinds = {"adamw8bit": "AdamW8bit", "pagedadamw8bit": "PagedAdamW8bit"}
            return getattr(bitsandbytes.optim, kinds[name])(parameters, lr=1e-4)
    refuse(f"there is no optimizer {name}")


def sides(asked: argparse.Namespace) -> tuple[int, int]:
    """Height and width of an image."""
    if not asked.image:
        refuse("a network of images takes their size", "--image SIZE says how large they are")
    height, width = (int(side) for side in asked.image.split("x"))
    return height, width


def base_of(model: torch.nn.Module) -> torch.nn.Module:
    """The network without its adapters."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def batch_of(asked: argparse.Namespace, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A batch on the processor. Its values decide no size."""
    import torch

    base = base_of(model)
    if not hasattr(base, "main_input_name"):
        height, width = sides(asked)
        dtype = next(base.parameters()).dtype
        by_pixel = type(base).__module__.startswith("torchvision.models.segmentation")
        shape = (asked.batch, height, width) if by_pixel else (asked.batch,)
        images = torch.randn(asked.batch, 3, height, width, dtype=dtype)
        return {"pixel_values": images, "labels": torch.zeros(shape, dtype=torch.int64)}
    config = base.config
    takes = inspect.signature(base.forward).parameters
    main = base.main_input_name
    text = config.get_text_config()
    count, length = asked.batch, asked.seq
    data: dict[str, torch.Tensor] = {}
    if main in ("input_ids", "input_features") and not length:
        refuse(f"{type(base).__name__} takes tokens", "--seq N says how many")
    if main == "input_ids":
        data[main] = torch.randint(text.vocab_size, (count, length))
    elif main == "pixel_values":
        vision = getattr(config, "vision_config", config)
        height, width = sides(asked)
        data[main] = torch.randn(count, getattr(vision, "num_channels", 3), height, width, dtype=base.dtype)
    elif main == "input_features" and hasattr(config, "num_mel_bins"):
        frames = 2 * config.max_source_positions
        data[main] = torch.randn(count, config.num_mel_bins, frames, dtype=base.dtype)
    else:
        refuse(
            f"{type(base).__name__} takes {main}, for which there is no option",
            PROGRAM,
        )
    name = type(base).__name__
    classes = getattr(config, "num_labels", 2)
    if "start_positions" in takes:
        data["start_positions"] = torch.randint(length, (count,))
        data["end_positions"] = torch.randint(length, (count,))
    elif "labels" in takes:
        if "SequenceClassification" in name or "ImageClassification" in name:
            data["labels"] = torch.randint(classes, (count,))
        elif "TokenClassification" in name:
            data["labels"] = torch.randint(classes, (count, length))
        else:
            data["labels"] = torch.randint(text.vocab_size, (count, length))
    if "next_sentence_label" in takes:
        data["next_sentence_label"] = torch.randint(2, (count,))
    return data


def loss_of(model: torch.nn.Module, data: dict[str, torch.Tensor]) -> torch.Tensor:
    """The loss; of a network without a head, something to begin the backward pass with."""
    if not hasattr(base_of(model), "main_input_name"):
        return loss_of_classes(model(data["pixel_values"]), data["labels"])
    output = model(**data)
    loss = getattr(output, "loss", None)
    return loss if loss is not None else output[0].float().mean()


def loss_of_classes(scores: Any, labels: torch.Tensor) -> torch.Tensor:
    """The loss of classes. With an auxiliary head it is the sum of torchvision's reference for segmentation."""
    import torch

    if isinstance(scores, dict):
        losses = {name: loss_of_classes(found, labels) for name, found in scores.items()}
        return losses["out"] + 0.5 * losses["aux"] if "aux" in losses else losses["out"]
    return torch.nn.functional.cross_entropy(scores, labels)


def checkpoint(model: torch.nn.Module, asked: argparse.Namespace) -> None:
    """Compute activations once more in the backward pass."""
    base = base_of(model)
    try:
        if hasattr(base, "set_grad_checkpointing"):
            base.set_grad_checkpointing(True)
            return
        if asked.lora or asked.freeze:
            model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    except (AssertionError, ValueError) as error:
        refuse(f"{type(base).__name__} has no checkpointing: {error}", PROGRAM)


def train(arguments: list[str]) -> None:
    """Train, until the recorder has seen enough."""
    import torch

    asked = options(arguments)
    check_packages(["peft"] if asked.lora else [])
    in_bits = asked.lora_base or asked.optimizer in ("adamw8bit", "pagedadamw8bit")
    check_packages(["bitsandbytes"] if in_bits else [])
    check_packages(["accelerate"] if asked.lora_base else [])
    defined = definition(asked)
    package = library(defined)
    check_packages([package])
    check_options(asked, package)
    model = BUILDERS[package](asked, defined)
    freeze(model, asked.freeze)
    if asked.lora:
        model = with_adapters(model, asked)
    if asked.checkpointing:
        checkpoint(model, asked)
    update = optimizer(asked.optimizer, model)
    autocast = torch.bfloat16 if asked.precision == "mixed" else None
    if asked.lora_base:
        # What is not quantized is fp32 now; people train such networks with the Trainer's `bf16` or `fp16`.
        autocast = {"fp32": None, "fp16": torch.float16}.get(asked.precision, torch.bfloat16)
    for _ in range(STEPS):
        for _ in range(asked.accumulate):
            data = {name: tensor.cuda() for name, tensor in batch_of(asked, model).items()}
            with torch.autocast("cuda", autocast or torch.bfloat16, enabled=autocast is not None):
                loss = loss_of(model, data)
            loss.backward()
        update.step()
        update.zero_grad()


def prepare(arguments: list[str]) -> None:
    """Import what defines the network. What is wrong with it is said when it is trained."""
    with contextlib.suppress(Exception):
        asked = options(arguments)
        importlib.import_module(library(definition(asked)))
        import transformers

        config = transformers.AutoConfig.from_pretrained(asked.config)
        for name in config.architectures or []:
            getattr(transformers, name, None)


def main(arguments: list[str]) -> None:
    """Import what every step needs, the first one with these `arguments`, and train what is asked for."""
    package = library(definition(options(arguments))) if arguments else "transformers"
    check_packages(["torch", package])
    # Nothing is fetched: the configuration is a file.
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch  # noqa: F401

    importlib.import_module(package)
    from fit_check_recorder import forks

    forks.serve(prepare, train)


if __name__ == "__main__":
    main(sys.argv[1:])
