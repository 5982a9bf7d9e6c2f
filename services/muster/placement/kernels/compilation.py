"""Kernels: functions that loop over arrays, compiled to machine code by numba before they are needed.

What must hold of them, and tests assert: integers, flags and int64 arrays only; always the types that are said at the
function; names from files of kernels only, since kept machine code is taken for current as long as those are.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

import numba
from numba.core.caching import InTreeCacheLocator

INT: Final = numba.int64
FLAG: Final = numba.boolean
INTS: Final = numba.int64[::1]
TABLE: Final = numba.int64[:, ::1]
CUBE: Final = numba.int64[:, :, ::1]

_FILES: Final = sorted(path for path in Path(__file__).parent.glob("*.py") if path.stem != "precompile")
_TEXT: Final = sha256(b"".join(path.read_bytes() for path in _FILES)).hexdigest()[:16]
"""Of all files with kernels. It is part of the names under which machine code is kept: numba looks at the file of the
kernel itself alone, not at what that imports.
"""

_INNER: Final[dict[str, Any]] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Nothing but kernels calls them, so that much less is to be compiled."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Kernel:
    """A function that is called from Python, with the types of its arguments."""

    def __init__(self, function: Callable[..., Any], types: tuple[Any, ...]) -> None:
        self.name = f"{function.__module__}.{function.__name__}"
        self.types = types
        self._file = Path(function.__code__.co_filename)
        function.__qualname__ = f"{function.__name__}.{_TEXT}"
        self.compiled: Any
        try:
            self.compiled = numba.njit(cache=True)(function)
        except RuntimeError:  # neither __pycache__ beside the file nor the user's cache directory can be written
            self.compiled = numba.njit(function)

    def make_ready(self) -> bool:
        """Load its machine code; returns whether it had to be compiled, for want of any for this processor."""
        try:
            self.compiled.compile(self.types)
        except OSError:
            # It was compiled and could not be kept.
            if self.types not in self.compiled.overloads:
                raise
        except Exception:
            # Whatever is wrong with what was kept: half a file after a power failure, for one.
            self._forget()
            self.compiled.compile(self.types)
        return not self.compiled.stats.cache_hits

    def _forget(self) -> None:
        folder = self.compiled.stats.cache_path
        for path in Path(folder).glob(f"{self._file.stem}.{self.compiled.__name__}.*") if folder else ():
            path.unlink()


_kernels: Final[list[Kernel]] = []


def kernel(*types: Any) -> Callable[[_Function], _Function]:
    """Compile the function for arguments of these types.

    Its machine code is kept in __pycache__ beside the file, or in the user's cache directory; where neither can be
    written, each process compiles for itself.
    """

    def compiled(function: _Function) -> _Function:
        made = Kernel(function, types)
        _kernels.append(made)
        found: _Function = made.compiled
        return found

    return compiled


def inner(function: _Function) -> _Function:
    """A part of kernels."""
    found: Any = numba.njit(**_INNER)(function)
    part: _Function = found
    return part


def kernels() -> tuple[Kernel, ...]:
    """Those of all modules that are imported."""
    return tuple(_kernels)


class BesideTheFile(InTreeCacheLocator):
    """__pycache__ beside the kernels' file, as long as it is there."""

    def ensure_cache_path(self) -> None:
        """Raises OSError if it is not there and cannot be made."""
        Path(self.get_cache_path()).mkdir(exist_ok=True)  # type: ignore[no-untyped-call]
