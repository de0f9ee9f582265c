"""Measures training programs on a real GPU with PyTorch's own counters: `python measure.py OUT [SECONDS]`.

Each job has a process of its own, which imports packages while others have the GPU. Of each job OUT gets, as soon as
it ends, a line in `pairs.jsonl` (counters at each phase, memory of the device by NVML) and, in
`events-*.jsonl.gz`, every event of PyTorch's allocator and the operator for which it allocated.
"""

import gzip
import json
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"

START = time.monotonic()
FOLDER = Path(__file__).resolve().parent / "jobs"

# name, file, arguments, settings: "ops" also traces operators, "conf" sets the allocator, "cap" bounds it in MiB.
JOBS = [
    ("resnet50-b32", "image_classifier", "resnet50 --batch-size 32", {}),
    ("resnet50-b32-traced", "image_classifier", "resnet50 --batch-size 32", {"ops": True}),
    ("resnet50-b32-fp16", "image_classifier", "resnet50 --batch-size 32 --amp fp16", {"ops": True}),
    ("gpt2-b4-bf16", "language_trainer", "gpt2 --batch-size 4 --precision bf16 --accumulate 2", {"ops": True}),
    ("bert-b32-fp16", "language_trainer", "bert --batch-size 32 --length 128 --precision fp16", {"ops": True}),
    ("vit-b16-b32", "image_classifier", "vit_b_16 --batch-size 32", {"ops": True}),
    ("llama-1b-bf16", "language_loop", "", {"ops": True}),
    ("llama-1b-bf16-eager", "language_loop", "--attention eager", {"ops": True}),
    ("llama-1b-lora-checkpointing", "language_trainer", "llama --batch-size 2 --length 1024 --precision bf16 --lora 16 --checkpointing", {"ops": True}),
    ("llama-1b-qlora", "language_trainer", "llama --batch-size 2 --length 1024 --precision bf16 --lora 16 --checkpointing --four-bit", {"ops": True}),
    ("unet-b16", "diffusion", "--batch-size 16", {"ops": True}),
    ("mask-rcnn-b2", "mask_rcnn", "--batch-size 2", {"ops": True}),
    ("transformer-b32", "sequence", "transformer --batch-size 32", {"ops": True}),
    ("lstm-b32", "sequence", "lstm --batch-size 32", {"ops": True}),
    ("libraries", None, "", {}),
    ("resnet50-b32-expandable", "image_classifier", "resnet50 --batch-size 32", {"conf": "expandable_segments:True"}),
    ("gpt2-b4-bf16-expandable", "language_trainer", "gpt2 --batch-size 4 --precision bf16 --accumulate 2", {"conf": "expandable_segments:True"}),
    ("llama-1b-eager-expandable", "language_loop", "--attention eager", {"conf": "expandable_segments:True"}),
    ("llama-1b-autocast-checkpointing", "language_loop", "--autocast --checkpointing", {}),
    ("bert-b32", "language_trainer", "bert --batch-size 32 --length 128", {"ops": True}),
    ("bert-b32-eager", "language_trainer", "bert --batch-size 32 --length 128 --attention eager", {}),
    ("unet-b16-bf16", "diffusion", "--batch-size 16 --bf16", {"ops": True}),
    ("transformer-b32-bf16", "sequence", "transformer --batch-size 32 --amp", {"ops": True}),
    ("lstm-b32-bf16", "sequence", "lstm --batch-size 32 --amp", {"ops": True}),
    ("resnet50-b128-channels-last", "image_classifier", "resnet50 --batch-size 128 --amp bf16 --channels-last --optimizer sgd", {"ops": True}),
    ("resnet50-b128-benchmark", "image_classifier", "resnet50 --batch-size 128 --benchmark", {"ops": True}),
    ("vgg16-b32", "image_classifier", "vgg16 --batch-size 32 --optimizer sgd", {"ops": True}),
    ("mobilenet-v3-b64", "image_classifier", "mobilenet_v3_large --batch-size 64", {"ops": True}),
    ("efficientnet-b0-b64-fp16", "image_classifier", "efficientnet_b0 --batch-size 64 --amp fp16", {"ops": True}),
    ("densenet121-b32", "image_classifier", "densenet121 --batch-size 32", {"ops": True}),
    ("convnext-tiny-b32-bf16", "image_classifier", "timm/convnext_tiny --batch-size 32 --amp bf16 --optimizer adamw", {"ops": True}),
    ("swin-t-b32", "image_classifier", "swin_t --batch-size 32 --optimizer adamw", {"ops": True}),
    ("resnet18-b32", "image_classifier", "resnet18 --batch-size 32 --steps 2", {"ops": True, "snapshot": True}),
    ("resnet50-b8", "image_classifier", "resnet50 --batch-size 8", {"ops": True}),
    ("resnet50-b64", "image_classifier", "resnet50 --batch-size 64", {"ops": True}),
    ("regnet-y-8gf-b32", "image_classifier", "regnet_y_8gf --batch-size 32", {"ops": True}),
    ("bert-adafactor", "language_trainer", "bert --batch-size 16 --length 128 --optimizer adafactor", {}),
    ("bert-8bit-adam", "language_trainer", "bert --batch-size 16 --length 128 --optimizer adamw_bnb_8bit", {}),
    ("gpt2-b8-fp32-checkpointing", "language_trainer", "gpt2 --batch-size 8 --checkpointing", {}),
]  # fmt: skip
# The least capacity with which a job completes, by bisection between these MiB, in steps of 2 MiB.
BISECTIONS = [
    ("resnet50-b32", 3000, 3512),
    ("gpt2-b4-bf16", 4000, 6048),
]


def device_used() -> int:
    """Bytes in use on the device, as `nvidia-smi` shows them."""
    try:
        import pynvml
    except ImportError:
        return -1
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


class Job:
    """One job, in the process that runs it."""

    def __init__(self, name: str, settings: dict, out: Path) -> None:
        import torch

        self.torch = torch
        self.out = out
        self.marks: list[dict] = []
        self.answer: dict = {
            "job": name,
            "settings": settings,
            "torch": torch.__version__,
        }
        self.settings = settings
        self.steps = 0

    def mark(self, phase: str) -> None:
        stats = self.torch.cuda.memory_stats()
        self.marks.append(
            {
                "phase": phase,
                "allocations": stats["allocation.all.allocated"],
                "allocated": stats["allocated_bytes.all.current"],
                "allocated_peak": stats["allocated_bytes.all.peak"],
                "requested_peak": stats["requested_bytes.all.peak"],
                "reserved": stats["reserved_bytes.all.current"],
                "reserved_peak": stats["reserved_bytes.all.peak"],
                "segments": stats["segment.all.current"],
                "retries": stats["num_alloc_retries"],
                "device": device_used(),
            }
        )

    def hook(self) -> None:
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        register_optimizer_step_pre_hook(lambda *_: self.mark("backward"))
        register_optimizer_step_post_hook(lambda *_: self.mark("optimizer"))

    def run(self, file: str | None, arguments: list[str]) -> dict:
        torch = self.torch
        self.answer["device_before"] = device_used()
        if conf := self.settings.get("conf"):
            torch.cuda.memory._set_allocator_settings(conf)
        torch.cuda.init()
        torch.cuda.synchronize()
        properties = torch.cuda.get_device_properties(0)
        self.answer["gpu"] = properties.name
        self.answer["total"] = properties.total_memory
        self.answer["device_context"] = device_used()
        if cap := self.settings.get("cap"):
            torch.cuda.set_per_process_memory_fraction(
                cap * 2**20 / properties.total_memory
            )
        if file is None:
            self.libraries()
            return self.answer
        self.hook()
        if not self.settings.get("cap"):
            torch.cuda.memory._record_memory_history(
                enabled="all", context=None, stacks="python", max_entries=4_000_000
            )
        sys.argv = [file, *arguments]
        profiler = None
        if self.settings.get("ops"):
            profiler = torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
            )
            profiler.start()
        start = time.monotonic()
        try:
            runpy.run_path(str(FOLDER / f"{file}.py"), run_name="__main__")
            self.answer["outcome"] = "trained"
        except torch.OutOfMemoryError as error:
            self.answer["outcome"] = "out of memory"
            self.answer["message"] = str(error)
        self.answer["seconds"] = time.monotonic() - start
        self.mark("end")
        if profiler:
            profiler.stop()
            self.answer["operators"] = operators(profiler)
        self.answer["marks"] = self.marks
        if not self.settings.get("cap"):
            if self.settings.get("snapshot"):
                torch.cuda.memory._dump_snapshot(str(self.out / "snapshot.pickle"))
            snapshot = torch.cuda.memory._snapshot()
            self.answer["events"] = events(snapshot["device_traces"][0])
            self.answer["segments"] = [
                [s["address"], s["total_size"], s["stream"], s["segment_type"]]
                for s in snapshot["segments"]
            ]
        return self.answer

    def libraries(self) -> None:
        """What the device holds after each library has been used for the first time."""
        torch = self.torch
        readings = self.answer["libraries"] = {}

        def read(name: str) -> None:
            torch.cuda.synchronize()
            stats = torch.cuda.memory_stats()
            readings[name] = [device_used(), stats.get("reserved_bytes.all.current", 0)]

        read("context")
        x = torch.zeros(1024, 1024, device="cuda")
        read("first tensor")
        (x + 1).sum()
        read("elementwise and reduction")
        x @ x
        read("cublas")
        x.half() @ x.half()
        read("cublas fp16")
        torch.nn.functional.conv2d(
            torch.zeros(2, 3, 32, 32).cuda(), torch.zeros(8, 3, 3, 3).cuda()
        )
        read("cudnn")
        q = torch.zeros(
            2, 4, 128, 64, device="cuda", dtype=torch.half, requires_grad=True
        )
        torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
        read("attention")
        torch.linalg.qr(x)
        read("cusolver")
        torch.fft.fft(x)
        read("cufft")
        os.environ.update(
            MASTER_ADDR="127.0.0.1", MASTER_PORT="29533", RANK="0", WORLD_SIZE="1"
        )
        torch.distributed.init_process_group("nccl")
        torch.distributed.all_reduce(x)
        read("nccl of one rank")
        self.answer["outcome"] = "read"


def events(trace: list[dict]) -> list:
    """The allocator's events: [action, address, bytes, stream]."""
    return [
        [e["action"], e.get("addr", 0), e["size"], e.get("stream", 0)] for e in trace
    ]


def operators(profiler: object) -> list:
    """For each event of memory in order: [bytes, names of the operators around it, the innermost last]."""
    found = []
    stacks: dict[int, list] = {}
    entries = []
    for event in profiler.profiler.kineto_results.events():
        start = event.start_ns()
        name = event.name()
        if name == "[memory]":
            if str(event.device_type()).endswith("CUDA"):
                entries.append(
                    (start, 1, event.start_thread_id(), event.nbytes(), name)
                )
        else:
            entries.append(
                (start, 0, event.start_thread_id(), start + event.duration_ns(), name)
            )
    entries.sort(key=lambda entry: (entry[0], entry[1]))
    for start, kind, thread, value, name in entries:
        stack = stacks.setdefault(thread, [])
        while stack and stack[-1][0] < start:
            stack.pop()
        if kind == 0:
            stack.append((value, name))
        else:
            names = [n for _, n in stack[-4:]]
            found.append([value, names])
    return found


def import_packages() -> None:
    import accelerate  # noqa: F401
    import peft  # noqa: F401
    import timm  # noqa: F401
    import torchvision  # noqa: F401
    from transformers import (  # noqa: F401
        BertForSequenceClassification,
        GPT2LMHeadModel,
        LlamaForCausalLM,
        Trainer,
    )


def work(out: Path) -> None:
    """The process of one job: imports first, and starts when it reads the job from its stdin."""
    answers = os.dup(1)
    os.dup2(2, 1)
    import_packages()
    line = sys.stdin.readline()
    if not line:
        return
    name, file, arguments, settings = json.loads(line)
    try:
        answer = Job(name, settings, out).run(file, arguments.split())
    except BaseException:  # noqa: BLE001  (SystemExit too is an answer)
        answer = {"job": name, "settings": settings}
        answer["outcome"] = traceback.format_exc()[-3000:]
    answer["arguments"] = f"{file}.py {arguments}"
    with os.fdopen(answers, "wb") as pipe:
        pipe.write(gzip.compress(json.dumps(answer).encode(), 4))
    os._exit(0)


class Workers:
    """Processes that import packages while another job has the GPU."""

    def __init__(self, out: Path, ahead: int) -> None:
        command = [sys.executable, __file__, "--work", str(out)]
        self.start = lambda: subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.waiting = [self.start() for _ in range(ahead)]

    def run(self, job: tuple, limit: float) -> dict:
        """Runs a job for at most `limit` seconds."""
        worker = self.waiting.pop(0)
        self.waiting.append(self.start())
        try:
            data, _ = worker.communicate(json.dumps(job).encode() + b"\n", limit)
        except subprocess.TimeoutExpired:
            os.killpg(worker.pid, signal.SIGKILL)
            data, _ = worker.communicate()
        if not data:
            return {"job": job[0], "settings": job[3], "outcome": "killed"}
        return json.loads(gzip.decompress(data))

    def end(self) -> None:
        for worker in self.waiting:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.communicate()


def main() -> None:
    if sys.argv[1] == "--work":
        work(Path(sys.argv[2]))
        return
    out = Path(sys.argv[1])
    until = float(sys.argv[2]) if len(sys.argv) > 2 else 240
    only = set(sys.argv[3:])
    out.mkdir(parents=True, exist_ok=True)
    workers = Workers(out, 6)

    def keep(answer: dict) -> None:
        # The machine brings back files of 16 MiB at most.
        written = sorted(out.glob("events-*.jsonl.gz"))
        number = len(written) - 1 if written else 0
        if written and written[-1].stat().st_size > 10 << 20:
            number += 1
        with gzip.open(out / f"events-{number}.jsonl.gz", "ab", 6) as file:
            file.write(json.dumps(answer).encode() + b"\n")
        for long in ("events", "operators", "segments"):
            answer.pop(long, None)
        with open(out / "pairs.jsonl", "a") as file:
            file.write(json.dumps(answer) + "\n")
        peak = (answer.get("marks") or [{}])[-1]
        print(
            f"{time.monotonic() - START:6.1f} s {answer['job']} {answer['settings']}: {answer['outcome'][-300:]}, allocated {peak.get('allocated_peak', 0) / 2**20:.1f}, "
            f"reserved {peak.get('reserved_peak', 0) / 2**20:.1f}, device {peak.get('device', 0) / 2**20:.1f} MiB",
            flush=True,
        )

    left = lambda: until - (time.monotonic() - START)
    failed = 0
    jobs = [job for job in JOBS if not only or job[0] in only]
    for name, file, arguments, settings in jobs:
        if left() < 10:
            print("no time left for", name, flush=True)
            continue
        answer = workers.run((name, file, arguments, settings), min(60, left()))
        failed = failed + 1 if answer["outcome"] not in ("trained", "read") else 0
        keep(answer)
        if failed == 4:
            print("four jobs failed one after the other", flush=True)
            workers.end()
            sys.exit(1)
    for name, low, high in BISECTIONS:
        file, arguments = next((f, a) for n, f, a, _ in JOBS if n == name)
        while high - low > 2 and left() > 10 and not only:
            middle = (low + high) // 4 * 2
            answer = workers.run(
                (name, file, arguments, {"cap": middle}), min(60, left())
            )
            keep(answer)
            if answer["outcome"] == "trained":
                high = middle
            elif answer["outcome"] == "out of memory":
                low = middle
            else:
                break
    workers.end()


main()
