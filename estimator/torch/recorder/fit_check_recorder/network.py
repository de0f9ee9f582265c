"""A program that failed because it did not reach the network: what to do."""

from __future__ import annotations

import errno
import socket
import urllib.error

HINT = (
    "the program needs the network, and did not reach it: fetch its files beforehand, where there is one"
    " (`hf download NAME` for a model of Hugging Face), or give it a folder of this machine"
)

#: Packages that speak with the network, and the errors with which they say that nothing answered.
_CLIENTS = ("requests", "urllib3", "httpx", "httpcore", "aiohttp", "botocore")
_UNREACHED = (
    "ConnectError", "ConnectTimeout", "ConnectTimeoutError", "ConnectionError", "NameResolutionError",
    "NewConnectionError", "ClientConnectorError", "EndpointConnectionError", "MaxRetryError",
)  # fmt: skip
#: huggingface_hub's own: it found no connection, or was told to make none, and has no file of before.
_HUGGING_FACE = ("LocalEntryNotFoundError", "OfflineModeIsEnabled")


def hint(error: BaseException) -> str | None:
    """What to do, if `error` or what it comes from is that the network was not reached."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if _is_unreached(current):
            return HINT
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return None


def _is_unreached(error: BaseException) -> bool:
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError):
        # It does not name its cause; the reason may be a file, too.
        error = error.reason
        if isinstance(error, (ConnectionError, TimeoutError)):
            return True
    if isinstance(error, socket.gaierror):
        return True
    if isinstance(error, OSError) and error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return True
    for kind in type(error).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in _CLIENTS and kind.__name__ in _UNREACHED:
            return True
        if package == "huggingface_hub" and kind.__name__ in _HUGGING_FACE:
            return True
    return False
