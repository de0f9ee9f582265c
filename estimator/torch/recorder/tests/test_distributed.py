"""Several cards: each rank is recorded alone."""

import json
import multiprocessing
import os
import subprocess
import sys

from fit_check_recorder.data_parallel import assign_buckets
from fit_check_recorder.settings import Card, Settings
from fit_check_recorder.stream import LineStream

SCRIPT = """
import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"]); torch.cuda.set_device(rank)
net = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False) for _ in range(10)]).cuda(rank)
model = DistributedDataParallel(net, device_ids=[rank], gradient_as_bucket_view=bool(int(sys.argv[1])))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(9):
    model(torch.randn(4, 1024, device=rank)).sum().backward(); optimizer.step(); optimizer.zero_grad()
"""
MIB = 1 << 20
ENVIRONMENT = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}


def buckets(run):
    """Sizes of the tensors that `torch.empty` made, in MiB."""
    return [size // MIB for size, operator, _ in run.births() if operator == "aten::empty"]


def test_buckets_are_of_one_and_of_twenty_five_mib(record):
    """Ten weights of 4 MiB: one bucket at first (`_ddp_init_helper`: they will be made anew), and then the first
    is full at once, seven reach 25 MiB, and two are left."""
    run = record(SCRIPT, 0, devices=2, environment=ENVIRONMENT)
    assert run.bye["reason"] == "steps", run.errors
    assert buckets(run) == [40, 4, 28, 8]
    assert run.of("hello")[0][1]["rank"] == 1


def test_gradients_that_are_views_take_nothing_else(record):
    apart = record(SCRIPT, 0, devices=2, environment=ENVIRONMENT)
    views = record(SCRIPT, 1, devices=2, environment=ENVIRONMENT)

    def live(run):
        size, most, sizes = 0, 0, {}
        for line in run.lines:
            if line[0] == "a":
                sizes[line[1]] = line[2]
                size += line[2]
                most = max(most, size)
            elif line[0] == "f":
                size -= sizes.pop(line[1])
        return most

    # The gradients take 40 MiB, of which one at a time remains.
    assert 34 * MIB < live(apart) - live(views) < 42 * MIB


def test_assignment_follows_the_limits():
    import torch

    tensors = [torch.empty(n, device="meta") for n in (10, 300_000, 10, 7_000_000, 10)]
    assert assign_buckets(tensors, [MIB, 25 * MIB]) == (
        [[0, 1], [2, 3], [4]],
        [MIB, 25 * MIB, 25 * MIB],
    )


def test_each_rank_of_torchrun_writes_a_stream(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    from conftest import FOLDER

    subprocess.run(
        [sys.executable, "-m", "fit_check_recorder.dump", "--devices", "2", "--",
         "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script), "0"],
        cwd=tmp_path, env=dict(os.environ, PYTHONPATH=str(FOLDER)), timeout=300, check=True,
        capture_output=True,
    )  # fmt: skip
    assert len(list(tmp_path.glob("lines.jsonl*"))) == 2


def _write_one_line(path, barrier):
    barrier.wait()
    stream = LineStream(Settings(Card("a card", (8, 6), 24 << 30), file=path))
    stream.write("hello", os.getpid())
    stream.close()


def test_ranks_that_begin_at_once_write_files_of_their_own(tmp_path):
    ranks = 4
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        context = multiprocessing.get_context("fork")
        barrier = context.Barrier(ranks)
        arguments = (str(folder / "lines.jsonl"), barrier)
        processes = [context.Process(target=_write_one_line, args=arguments) for _ in range(ranks)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert sorted(file.read_text() for file in folder.iterdir()) == sorted(
            f'["hello",{process.pid}]\n' for process in processes
        )


IDIOM = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"]); torch.cuda.set_device(rank)
def train(moved, move):
    model = DistributedDataParallel(moved, device_ids=[rank], output_device=rank)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        result = model(move(torch.randn(8, 64)))
        result.sum().backward(); optimizer.step(); optimizer.zero_grad()
    print(result.device, {str(parameter.device) for parameter in model.parameters()})
def net(): return torch.nn.Linear(64, 64)
train(net().cuda(), lambda batch: batch.cuda(non_blocking=True))
train(net().to("cuda"), lambda batch: batch.to("cuda"))
train(net().to(rank), lambda batch: batch.to(rank))
train(net().cuda(rank), lambda batch: batch)
"""


def test_a_rank_stays_on_its_own_card(record):
    """However the script names the card; the last loop leaves it to DistributedDataParallel to move its inputs."""
    run = record(IDIOM, devices=4, steps=99, environment={"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "4"})
    assert run.output.splitlines() == ["cuda:3 {'cuda:3'}"] * 4, run.errors
    assert {line[7] for line in run.of("a")} == {3}


SYNCED = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl"); torch.cuda.set_device(1)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
net = torch.nn.SyncBatchNorm.convert_sync_batchnorm(net).cuda()
model = DistributedDataParallel(net, device_ids=[1])
result = model(torch.randn(4, 3, 9, 9)); result.sum().backward()
print(type(net[1]).__name__, tuple(result.shape), [tuple(parameter.grad.shape) for parameter in net.parameters()])
"""


def test_norms_of_all_ranks(record):
    run = record(SYNCED, devices=2, environment=ENVIRONMENT)
    assert run.output == "SyncBatchNorm (4, 8, 7, 7) [(8, 3, 3, 3), (8,), (8,), (8,)]\n", run.errors
    born = [(size, operator) for size, operator, _ in run.births() if operator.startswith("aten::batch_norm")]
    assert born == [
        *[(32, "aten::batch_norm_stats")] * 2,
        *[(32, "aten::batch_norm_gather_stats_with_counts")] * 2,
        (4 * 4 * 8 * 7 * 7, "aten::batch_norm_elemt"),
        *[(32, "aten::batch_norm_backward_reduce")] * 4,
        (4 * 4 * 8 * 7 * 7, "aten::batch_norm_backward_elemt"),
    ]


DATA_PARALLEL = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.BatchNorm1d(512), torch.nn.Linear(512, 10)).cuda()
model = torch.nn.DataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    result = model(torch.randn(8, 512))
    result.sum().backward(); optimizer.step(); optimizer.zero_grad()
print(result.device, tuple(result.shape))
"""


def test_data_parallel_has_a_replica_on_each_card(record):
    run = record(DATA_PARALLEL, devices=2, steps=99)
    assert run.output == "cuda:0 (8, 10)\n", run.errors
    parameters = 4 * (512 * 512 + 512 + 2 * 512 + 512 * 10 + 10)
    flat = {size for size, operator, _ in run.births() if operator == "aten::empty_like"}
    assert parameters in flat
    assert {line[7] for line in run.of("a")} == {0, 1}


def test_data_parallel_on_one_card_is_the_module_itself(record):
    run = record(DATA_PARALLEL, steps=99)
    assert run.output == "cuda:0 (8, 10)\n", run.errors


def test_resized_storage_is_freed_and_made_anew(record):
    run = record(
        """
        import torch
        x = torch.zeros(1000, device="cuda"); storage = x.untyped_storage()
        storage.resize_(0); print(torch.cuda.memory_allocated())
        storage.resize_(4000); print(torch.cuda.memory_allocated())
        x.resize_(2000); print(torch.cuda.memory_allocated())
        """
    )
    assert run.output.split() == ["0", "4096", "8192"]


def test_a_rank_that_starts_the_others_waits_for_them(record):
    """Lightning starts them with `LOCAL_RANK` alone, and the first may be done before the second."""
    run = record(
        """
        import os, subprocess, sys, time, torch
        rank = int(os.environ.get("LOCAL_RANK", 0))
        if rank == 0:
            subprocess.Popen([sys.executable, *sys.argv], env=dict(os.environ, LOCAL_RANK="1"))
        else:
            time.sleep(3)
        model = torch.nn.Linear(64, 64).to(rank)
        optimizer = torch.optim.SGD(model.parameters(), lr=1)
        for _ in range(99):
            model(torch.randn(8, 64, device=rank)).sum().backward(); optimizer.step(); optimizer.zero_grad()
        """,
        devices=2,
    )
    assert run.bye["reason"] == "steps", run.errors
    (other,) = run.path.parent.glob("lines.jsonl.*")
    lines = [json.loads(line) for line in other.read_text().splitlines()]
    assert (lines[0][1]["rank"], lines[-1][1]["reason"]) == (1, "steps")


def test_objects_are_each_ranks_own(record):
    """A rank that waits for the size of another's object would read what memory holds by chance."""
    run = record(
        """
        import torch.distributed as dist
        dist.init_process_group("nccl", rank=1, world_size=2)
        sent, all_, out = ["mine"], [None, None], [None]
        dist.broadcast_object_list(sent, src=0); dist.all_gather_object(all_, {"loss": 1})
        dist.gather_object("this", None, dst=0); dist.scatter_object_list(out, ["first", "second"], src=1)
        print(sent, all_, out)
        """,
        devices=2,
    )
    assert run.output == "['mine'] [{'loss': 1}, {'loss': 1}] ['second']\n", run.errors
