"""Free loopback ports, picked where the kernel never takes ports for outgoing connections from."""

import random
import socket

_FIRST, _LAST = 20_000, 32_000  # below Linux's default ip_local_port_range (32768-60999)
_ATTEMPTS = 500
_random = random.SystemRandom()  # others seed the common one, and then all choose the same ports
_given: set[int] = set()


class NoFreePort(RuntimeError):
    """No free loopback port was found; something on this machine holds thousands of them."""


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nothing listens on now and that no outgoing connection will be given. None is given
    twice: it belongs to whom it was given to, also while that is being started again.
    """
    for _ in range(_ATTEMPTS):
        port = _random.randint(_FIRST, _LAST)
        if port in _given:
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.add(port)
            return port
    raise NoFreePort(f"no free port between {_FIRST} and {_LAST} on 127.0.0.1 in {_ATTEMPTS} tries")
