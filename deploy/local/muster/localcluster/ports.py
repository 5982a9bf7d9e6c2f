"""Allocates free loopback ports outside the kernel's range for outgoing connections."""

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

_FIRST, _LAST = 20_000, 32_000  # below Linux's default ip_local_port_range (32768-60999)
_ATTEMPTS = 500
_random = random.SystemRandom()  # tests seed the global generator, which would give all processes the same ports
_allocated: set[int] = set()


class NoFreePort(RuntimeError):
    """No free loopback port was found; some process on this machine uses thousands of them."""


def free_port() -> int:
    """Allocate a TCP port of 127.0.0.1 that no process listens on and no outgoing connection uses.

    The port stays allocated while this process lives, so that a server can be restarted on it: it is not allocated
    again, by this or any other process of this user. Raises NoFreePort.
    """
    for _ in range(_ATTEMPTS):
        port = _random.randint(_FIRST, _LAST)
        if port in _allocated or not _claim(port):
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _allocated.add(port)
            return port
    raise NoFreePort(f"no free port between {_FIRST} and {_LAST} on 127.0.0.1 in {_ATTEMPTS} tries")


def _claim(port: int) -> bool:
    """Lock the byte with the port's number in a shared file until this process exits. False if another one has it."""
    try:
        fcntl.lockf(_claims_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _claims_file() -> int:
    path = Path(tempfile.gettempdir()) / f"muster-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
