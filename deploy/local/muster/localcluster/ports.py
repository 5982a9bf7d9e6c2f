"""Free loopback ports, picked where the kernel never takes ports for outgoing connections from."""

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

_FIRST, _LAST = 20_000, 32_000  # below Linux's default ip_local_port_range (32768-60999)
_ATTEMPTS = 500
_random = random.SystemRandom()  # others seed the common one, and then all choose the same ports
_given: set[int] = set()


class NoFreePort(RuntimeError):
    """No free loopback port was found; something on this machine holds thousands of them."""


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nothing listens on now and that no outgoing connection will be given. It belongs to
    whom it was given to, also while that is being started again: as long as this process lives, none is given twice,
    not by other processes of this user either.
    """
    for _ in range(_ATTEMPTS):
        port = _random.randint(_FIRST, _LAST)
        if port in _given or not _claim(port):
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.add(port)
            return port
    raise NoFreePort(f"no free port between {_FIRST} and {_LAST} on 127.0.0.1 in {_ATTEMPTS} tries")


def _claim(port: int) -> bool:
    """Lock the byte of that number in a file that all share; the lock goes with the process. False: it is another's."""
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _claims() -> int:
    path = Path(tempfile.gettempdir()) / f"muster-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
