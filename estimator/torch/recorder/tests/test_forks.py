"""A step that is recorded in a fork makes the same lines as in a process of its own."""

import json
import pathlib

import pytest

from fit_check_recorder.fork_client import serving

pytest.importorskip("transformers")

RECORDER = pathlib.Path(__file__).parent.parent
STEP = RECORDER.parents[2] / "fit-check" / "src" / "torch_program" / "training_step.py"

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 300,
}

ALONE = f"""
import sys
sys.path.append({str(STEP.parent)!r})
import training_step
training_step.train(sys.argv[1:])
"""


def config(folder, model_type, architecture, **more):
    folder = folder / model_type
    folder.mkdir(exist_ok=True)
    content = SMALL | {"model_type": model_type, "architectures": [architecture]} | more
    (folder / "config.json").write_text(json.dumps(content))
    return str(folder)


def test_forks_record_what_a_process_of_its_own_records(tmp_path, record):
    llama = config(tmp_path, "llama", "LlamaForCausalLM", num_key_value_heads=2)
    bert = config(tmp_path, "bert", "BertForMaskedLM")
    vit = config(tmp_path, "vit", "ViTForImageClassification", image_size=32, patch_size=8)
    asked = [
        ("rtx-3090", [llama, "--batch=2", "--seq=16", "--precision=bf16"]),
        ("t4", [llama, "--batch=3", "--seq=16", "--precision=bf16"]),
        ("h200", [bert, "--batch=2", "--seq=16", "--precision=mixed", "--checkpointing"]),
        ("a100", [vit, "--batch=2", "--image=32x32", "--optimizer=adafactor"]),
        ("t4", [bert, "--batch=2", "--seq=16", "--attention=eager"]),
    ]
    lines = [tmp_path / f"{number}.jsonl" for number in range(len(asked))]
    with serving(STEP) as ask:
        for (card, arguments), path in zip(asked, lines, strict=True):
            assert ask(arguments, card, str(path)) == {"status": 0}
    for (card, arguments), path in zip(asked, lines, strict=True):
        alone = record(ALONE, *arguments, card=card)
        forked = [json.loads(line) for line in path.read_text().splitlines()]
        assert alone.status == 0
        assert forked[0][1]["settings"] == alone.lines[0][1]["settings"]
        assert forked[1:] == alone.lines[1:], (card, arguments)


def test_an_error_in_a_fork_leaves_the_next_request_alone(tmp_path):
    bert = config(tmp_path, "bert", "BertForMaskedLM")
    with serving(STEP) as ask:
        lines = tmp_path / "lines.jsonl"
        wrong = tmp_path / "wrong.jsonl"
        assert ask([bert, "--batch=2", "--seq=16", "--freeze=nowhere"], "t4", str(wrong)) == {"status": 2}
        assert ask([bert, "--batch=2", "--seq=16"], "t4", str(lines)) == {"status": 0}
        assert json.loads(lines.read_text().splitlines()[-1])[1]["reason"] == "steps"


def test_frozen_weights_in_four_bits_take_half_a_byte(tmp_path, record):
    """nf4 packs two weights into a byte; vectors of words and adapters are not quantized."""
    pytest.importorskip("bitsandbytes")
    llama = config(tmp_path, "llama", "LlamaForCausalLM", num_key_value_heads=2, tie_word_embeddings=False)
    script = tmp_path / "training_step.py"
    script.write_text(STEP.read_text())
    alone = ALONE.replace(str(STEP.parent), str(tmp_path))
    run = record(alone, llama, "--batch=2", "--seq=16", "--precision=bf16", "--lora=4", "--lora-base=4bit")
    assert run.status == 0, run.errors
    names = {line[1]: line[2] for line in run.of("n")}
    bytes_of = {line[1]: line[2] for line in run.of("a")}
    parameters = {names[line[3]]: bytes_of[line[1]] for line in run.of("r") if line[2] == "parameter"}
    found = {name.partition("layers.0.")[2]: size for name, size in parameters.items() if "layers.0." in name}
    assert found["self_attn.q_proj.base_layer.weight"] == 64 * 64 // 2
    assert found["mlp.down_proj.weight"] == 64 * 96 // 2
    assert found["self_attn.q_proj.lora_A.default.weight"] == 4 * 64 * 4
    assert [size for name, size in parameters.items() if "embed_tokens" in name] == [300 * 64 * 4]
    assert not list(tmp_path.glob("weights-*"))


#: Parameters of ResNet-18 with ten classes: 11,689,512 with 1,000 (torchvision's documentation), 513 for each class.
RESNET_18 = 11_689_512 - 990 * 513


@pytest.mark.parametrize("definition", [{"torchvision": "resnet18"}, {"architecture": "resnet18"}])
def test_networks_of_images_are_trained_to_tell_classes(tmp_path, record, definition):
    pytest.importorskip("timm")
    (tmp_path / "config.json").write_text(json.dumps(definition))
    run = record(ALONE, str(tmp_path), "--batch=2", "--image=64x64", "--classes=10", "--optimizer=momentum")
    assert run.status == 0, run.errors
    bytes_of = {line[1]: line[2] for line in run.of("a")}
    parameters = [bytes_of[line[1]] for line in run.of("r") if line[2] == "parameter"]
    assert sum(parameters) == 4 * RESNET_18


def test_what_a_package_does_not_have_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"torchvision": "resnet18"}')
    arguments = [str(tmp_path), "--batch=2", "--image=64x64"]
    with serving(STEP) as ask:
        for option in ("--checkpointing", "--attention=eager", "--lora=4", "--lora-base=4bit"):
            assert ask([*arguments, option], "t4", str(tmp_path / "lines")) == {"status": 2}, option
