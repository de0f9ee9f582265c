"""`torch.cuda` and `torch.accelerator` answer for the described card. Nothing of CUDA is initialised."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import torch

from . import current_device, streams
from .recording import Recording
from .settings import Card


class Properties(SimpleNamespace):
    """Stands in for `torch.cuda.get_device_properties(i)`."""

    def __init__(self, card: Card) -> None:
        super().__init__(
            name=card.name,
            major=card.capability[0],
            minor=card.capability[1],
            total_memory=card.total_bytes,
            multi_processor_count=card.multiprocessors,
            L2_cache_size=card.l2_bytes,
            shared_memory_per_block=49152,
            shared_memory_per_block_optin=card.shared_bytes_per_block_optin,
            shared_memory_per_multiprocessor=card.shared_bytes_per_multiprocessor,
            max_threads_per_multi_processor=card.threads,
            max_threads_per_block=1024,
            regs_per_multiprocessor=65536,
            warp_size=32,
            is_integrated=0,
            is_multi_gpu_board=0,
            gcnArchName="",
            uuid="00000000-0000-0000-0000-000000000000",
            pci_bus_id=0,
            pci_device_id=0,
            pci_domain_id=0,
        )


def install(recording: Recording) -> None:
    """Put the answers into torch.cuda, torch.accelerator and below."""
    _identity(recording)
    current_device.install(recording.settings.devices)
    streams.install()
    _work()
    _random()
    _memory(recording)
    _accelerator(recording)
    _graphs(recording)


def _identity(recording: Recording) -> None:
    cuda, card = torch.cuda, recording.settings.card
    count = recording.settings.devices
    cuda.is_available = lambda: True
    cuda.device_count = lambda: count
    cuda.init = cuda._lazy_init = lambda: None
    cuda.is_initialized = cuda.memory.is_initialized = lambda: True
    # `get_device_properties` and its like ask this, as PyTorch does once CUDA is initialised.
    cuda._get_device_properties = lambda device: Properties(card)
    cuda.can_device_access_peer = lambda device, peer: True
    # Emulated on older cards, which PyTorch counts as support (`is_bf16_supported`).
    cuda.is_bf16_supported = lambda including_emulation=True: card.capability[0] >= 8 or including_emulation
    cuda.is_tf32_supported = lambda: card.capability[0] >= 8
    cuda.get_arch_list = lambda: [f"sm_{card.number}"]
    cuda.utilization = lambda device=None: 0
    cuda.memory_usage = lambda device=None: 0
    cuda.temperature = lambda device=None: 0
    cuda.power_draw = lambda device=None: 0
    # `GradScaler` and `autocast` ask this module, which has the name by then.
    from torch.cuda.amp import common

    common.amp_definitely_not_available = lambda: False


def _work() -> None:
    cuda = torch.cuda
    cuda.synchronize = lambda device=None: None
    cuda.ipc_collect = lambda: None
    torch._C._cuda_getDeviceCount = lambda: torch.cuda.device_count()
    torch._C._cuda_clearCublasWorkspaces = lambda: None
    torch.Tensor.record_stream = lambda tensor, stream: None
    torch.Tensor.pin_memory = lambda tensor, device=None: tensor


def _random() -> None:
    cuda = torch.cuda
    cuda.manual_seed = cuda.manual_seed_all = lambda seed: None
    cuda.seed = cuda.seed_all = lambda: None
    cuda.initial_seed = lambda: 0
    cuda.get_rng_state = lambda device="cuda": torch.zeros(16, dtype=torch.uint8)
    cuda.set_rng_state = lambda state, device="cuda": None
    cuda.get_rng_state_all = lambda: [torch.zeros(16, dtype=torch.uint8)] * cuda.device_count()
    cuda.set_rng_state_all = lambda states: None
    for name in ("manual_seed", "manual_seed_all", "seed", "seed_all", "get_rng_state",
                 "set_rng_state", "get_rng_state_all", "set_rng_state_all"):  # fmt: skip
        setattr(cuda.random, name, getattr(cuda, name))

    class Generator(torch._C.Generator):
        """A generator for the card draws nothing there, so one of the processor stands in."""

        def __new__(cls, device: Any = "cpu") -> Generator:
            generator = super().__new__(cls, "cpu")
            generator._device = torch.device(device)
            return generator

        @property
        def device(self) -> torch.device:
            """The device that the program asked for."""
            return self._device

    torch.Generator = Generator


def _memory(recording: Recording) -> None:
    storages, card = recording.storages, recording.settings.card

    def statistics(device: int = 0) -> dict[str, Any]:
        live, peak = storages.live.get(device, 0), storages.peak.get(device, 0)
        figure = {"current": live, "peak": peak, "allocated": peak, "freed": peak - live}
        zero = dict.fromkeys(figure, 0)
        # Reserved is not known here: the allocator is in the program that reads the lines.
        held = {"current": _pages(live), "peak": _pages(peak), "allocated": peak, "freed": 0}
        nested = {
            name: {"all": figure, "large_pool": figure, "small_pool": zero}
            for name in ("allocated_bytes", "active_bytes", "requested_bytes")
        }
        nested["reserved_bytes"] = {"all": held, "large_pool": held, "small_pool": zero}
        for name in ("allocation", "segment", "active", "inactive_split", "inactive_split_bytes"):
            nested[name] = {"all": zero, "large_pool": zero, "small_pool": zero}
        nested["oversize_allocations"] = nested["oversize_segments"] = zero
        return nested | {"num_alloc_retries": 0, "num_ooms": 0, "max_split_size": -1,
                         "num_sync_all_streams": 0, "num_device_alloc": 0,
                         "num_device_free": 0}  # fmt: skip

    torch._C._cuda_memoryStats = statistics
    torch._C._cuda_resetPeakMemoryStats = recording.on_reset_peak
    torch._C._cuda_resetAccumulatedMemoryStats = lambda device: None
    torch._C._cuda_emptyCache = recording.on_empty_cache

    def mem_get_info(device: Any = None) -> tuple[int, int]:
        return card.total_bytes - storages.live.get(current_device.of(device), 0), card.total_bytes

    memory = torch.cuda.memory
    torch.cuda.mem_get_info = memory.mem_get_info = mem_get_info
    fraction = memory.set_per_process_memory_fraction = lambda fraction, device=None: None
    torch.cuda.set_per_process_memory_fraction = fraction
    memory._record_memory_history = lambda *args, **kwargs: None
    memory._dump_snapshot = lambda *args, **kwargs: None
    memory._snapshot = lambda *args, **kwargs: {"segments": [], "device_traces": []}
    torch.cuda.memory_snapshot = memory.memory_snapshot = lambda *args, **kwargs: []


def _pages(size: int) -> int:
    """Bytes rounded up to segments of 2 MiB (kSmallBuffer)."""
    return (size + (2 << 20) - 1) >> 21 << 21


def _accelerator(recording: Recording) -> None:
    accelerator, cuda = torch.accelerator, torch.device("cuda")
    accelerator.current_accelerator = lambda check_available=False: cuda
    accelerator.is_available = lambda: True
    accelerator.device_count = lambda: recording.settings.devices
    accelerator.synchronize = lambda device=None, /: None
    torch._C._get_accelerator = lambda check=None: cuda
    torch._C._accelerator_getAccelerator = lambda: cuda
    if hasattr(accelerator, "memory"):
        memory = accelerator.memory
        accelerator.empty_cache = memory.empty_cache = recording.on_empty_cache
        for name in ("memory_allocated", "max_memory_allocated", "memory_reserved",
                     "max_memory_reserved", "reset_peak_memory_stats", "memory_stats"):  # fmt: skip
            function = getattr(torch.cuda, name)
            setattr(accelerator, name, function)
            setattr(memory, name, function)


def _graphs(recording: Recording) -> None:
    def graphed(callables: Any, *args: Any, **kwargs: Any) -> Any:
        recording.approximate_here("CUDA graph", "make_graphed_callables ran eagerly")
        return callables

    class Graph:
        """Stands in for `torch.cuda.CUDAGraph`: what is captured runs once, a replay does nothing."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            recording.approximate_here("CUDA graph", "a captured graph ran eagerly")

        def __getattr__(self, name: str) -> Any:
            return lambda *args, **kwargs: None

    @contextlib.contextmanager
    def capture(*args: Any, **kwargs: Any) -> Any:
        yield

    torch.cuda.make_graphed_callables = graphed
    torch.cuda.CUDAGraph = Graph
    torch.cuda.graph = capture
    torch.cuda.graph_pool_handle = lambda: (0, 0)
