"""CUDA streams and events: names for the order of work, of which the allocator keeps apart the pools."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import torch

_numbers = itertools.count(1)


class _Current(threading.local):
    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}
        self.device = 0


_current = _Current()


def device_index(device: Any = None) -> int:
    """The index of a device as torch.cuda's functions take it: None is the current one."""
    if device is None:
        return _current.device
    if isinstance(device, int):
        return _current.device if device < 0 else device
    index = torch.device(device).index
    return _current.device if index is None else index


def set_device(device: Any) -> None:
    """`torch.cuda.set_device`, for this thread."""
    _current.device = device_index(device)


class Stream:
    """Stands in for `torch.cuda.Stream`. Number 0 is the default stream."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.device_index = device_index(device)
        self.stream_id = kwargs.get("stream_id", next(_numbers) if "default" not in kwargs else 0)
        self.priority = priority
        self.device_type = 1

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
        return event or Event()

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

    def __enter__(self) -> Stream:
        self._before = current_stream(self.device_index)
        set_stream(self)
        return self

    def __exit__(self, *error: Any) -> None:
        set_stream(self._before)


class Event:
    """Stands in for `torch.cuda.Event`. A measured time is a millisecond."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.cuda_event = 0
        self.device = None

    def record(self, stream: Any = None) -> None:
        """Nothing is queued."""

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


class StreamContext:
    """Stands in for `torch.cuda.stream(s)`."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self._before = current_stream(self.stream.device_index)
            set_stream(self.stream)

    def __exit__(self, *error: Any) -> None:
        if self.stream is not None:
            set_stream(self._before)


def default_stream(device: Any = None) -> Stream:
    """`torch.cuda.default_stream`."""
    return Stream(device_index(device), default=True)


def current_stream(device: Any = None) -> Stream:
    """`torch.cuda.current_stream`."""
    index = device_index(device)
    return _current.streams.get(index) or default_stream(index)


def set_stream(stream: Stream | None) -> None:
    """`torch.cuda.set_stream`."""
    if stream is not None:
        _current.streams[stream.device_index] = stream


def current_number() -> int:
    """The number of the stream on which this thread allocates."""
    streams = _current.streams
    if not streams:
        return 0
    stream = streams.get(_current.device)
    return 0 if stream is None else stream.stream_id
