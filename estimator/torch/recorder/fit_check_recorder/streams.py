"""CUDA streams and events: names for the order of work, of which the allocator keeps apart the pools."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import torch

from . import current_device

_numbers = itertools.count(1)
_CpuStream, _CpuEvent = torch.Stream, torch.Event


class _Current(threading.local):
    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}


_current = _Current()


class Stream:
    """Stands in for `torch.cuda.Stream` and `torch.Stream`. Number 0 is the default stream."""

    def __new__(cls, device: Any = None, *args: Any, **kwargs: Any) -> Any:
        """A stream of the processor stays PyTorch's own."""
        if _is_foreign(device):
            return _CpuStream(device, *args, **kwargs)
        return super().__new__(cls)

    def __init__(
        self,
        device: Any = None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int = 1,
        stream_ptr: int | None = None,
    ) -> None:
        self.device_index = current_device.of(device) if device_index is None else device_index
        self.stream_id = next(_numbers) if stream_id is None else stream_id
        self.priority = priority
        self.device_type = device_type
        self._before: list[_Place] = []

    @property
    def device(self) -> torch.device:
        """The card that the stream belongs to."""
        return torch.device("cuda", self.device_index)

    @property
    def cuda_stream(self) -> int:
        """A number that differs from stream to stream, as the driver's handle would."""
        return self.stream_id

    def synchronize(self) -> None:
        """Nothing is queued."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing is queued."""

    def wait_event(self, event: Any) -> None:
        """Nothing is queued."""

    def record_event(self, event: Event | None = None) -> Event:
        """Return the event."""
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """All work is done."""
        return True

    def is_capturing(self) -> bool:
        """No graph is being captured."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.stream_id, self.device_index) == (
            other.stream_id,
            other.device_index,
        )

    def __hash__(self) -> int:
        return hash((self.stream_id, self.device_index))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    def __enter__(self) -> Stream:
        self._before.append(_Place(self.device_index))
        set_stream(self)
        return self

    def __exit__(self, *error: Any) -> None:
        self._before.pop().restore()


class ExternalStream(Stream):
    """Stands in for `torch.cuda.ExternalStream`: a stream that another library made."""

    def __new__(cls, stream_ptr: int, device: Any = None, **kwargs: Any) -> Any:
        """What the library made is of a card."""
        return super().__new__(cls, device)

    def __init__(self, stream_ptr: int, device: Any = None, **kwargs: Any) -> None:
        super().__init__(device, stream_id=stream_ptr)


class Event:
    """Stands in for `torch.cuda.Event` and `torch.Event`. A measured time is a millisecond."""

    def __new__(cls, device: Any = None, *args: Any, **kwargs: Any) -> Any:
        """An event of the processor stays PyTorch's own. Of `torch.cuda.Event` the first argument is a flag."""
        if _is_foreign(device):
            return _CpuEvent(device, *args, **kwargs)
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.cuda_event = 0
        self.device: torch.device | None = None

    def record(self, stream: Any = None) -> None:
        """Nothing is queued. From now on the event belongs to the stream's card."""
        self.device = (stream or current_stream()).device

    def wait(self, stream: Any = None) -> None:
        """Nothing is queued."""

    def query(self) -> bool:
        """It has happened."""
        return True

    def synchronize(self) -> None:
        """It has happened."""

    def elapsed_time(self, end: Any) -> float:
        """A millisecond: no time is known."""
        return 1.0


def _is_foreign(device: Any) -> bool:
    """Whether a stream or an event is asked for that belongs to no card."""
    return isinstance(device, (str, torch.device)) and torch.device(device).type != "cuda"


class _Place:
    """What a change of the stream on a card changes: the stream there, and the current card."""

    def __init__(self, device: int) -> None:
        self._device = current_device.index()
        self._stream = current_stream(device)

    def restore(self) -> None:
        """Put both back."""
        set_stream(self._stream)
        current_device.set_index(self._device)


class StreamContext:
    """Stands in for `torch.cuda.stream(s)`."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self._before = _Place(self.stream.device_index)
            set_stream(self.stream)

    def __exit__(self, *error: Any) -> None:
        if self.stream is not None:
            self._before.restore()


def default_stream(device: Any = None) -> Stream:
    """`torch.cuda.default_stream`."""
    return Stream(stream_id=0, device_index=current_device.of(device))


def current_stream(device: Any = None) -> Stream:
    """`torch.cuda.current_stream`."""
    index = current_device.of(device)
    return _current.streams.get(index) or default_stream(index)


def set_stream(stream: Stream | None) -> None:
    """`torch.cuda.set_stream`: the stream's card becomes the current one, too."""
    if stream is not None:
        _current.streams[stream.device_index] = stream
        current_device.set_index(stream.device_index)


def current_number(device: int) -> int:
    """The number of the stream on which this thread allocates on a card."""
    stream = _current.streams.get(device)
    return 0 if stream is None else stream.stream_id


def install() -> None:
    """Put the stand-ins where programs and PyTorch look for them."""
    cuda, accelerator = torch.cuda, torch.accelerator
    torch.Stream = cuda.Stream = cuda.streams.Stream = Stream
    torch.Event = cuda.Event = cuda.streams.Event = Event
    cuda.ExternalStream = cuda.streams.ExternalStream = ExternalStream
    cuda.StreamContext = cuda.stream = StreamContext
    cuda.current_stream = accelerator.current_stream = current_stream
    cuda.set_stream = accelerator.set_stream = set_stream
    cuda.default_stream = default_stream
    cuda.is_current_stream_capturing = lambda: False
    torch._C._cuda_getCurrentRawStream = lambda device=0: current_stream(device).cuda_stream
    torch._C._cuda_isCurrentStreamCapturing = lambda: False
