"""Memory in use by this process, without the free memory that its allocators keep."""

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final

_BYTES_PER_BLOCK: Final = 94
"""Rough mean size of a block of Python's own allocator, whose blocks are of 16 to 512 bytes."""


def used_bytes() -> int:
    """Bytes in use: all of them under jemalloc, as in the image; else an estimate of those of small Python objects."""
    return _used_in_jemalloc() + sys.getallocatedblocks() * _BYTES_PER_BLOCK


def _used_in_jemalloc() -> int:
    """Bytes that jemalloc has allocated to this process; 0 without jemalloc."""
    control = _mallctl()
    if control is None:
        return 0
    used, length, epoch = ctypes.c_size_t(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_size_t)), ctypes.c_uint64(1)
    control(b"epoch", None, None, ctypes.byref(epoch), ctypes.sizeof(epoch))  # statistics are of the last new epoch
    failed = control(b"stats.allocated", ctypes.byref(used), ctypes.byref(length), None, 0)
    return 0 if failed else used.value


@cache
def _mallctl() -> Callable[..., Any] | None:
    """The function mallctl of jemalloc (see its manual page), if that is this process's allocator."""
    try:
        control = ctypes.CDLL(None).mallctl
    except AttributeError:
        return None
    control.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    return control
