"""Kernels: functions that loop over arrays, compiled to machine code by numba ahead of the first solve.

Rules, which tests assert: integers, flags and int64 arrays only; always the declared types; names from kernel modules
only, since cached machine code is considered current as long as those files are unchanged. Run as a program, this
module compiles and caches the machine code of all kernels.
"""

import time
from collections.abc import Callable
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

import numba
from numba.core.caching import InTreeCacheLocator

INT: Final = numba.int64
FLAG: Final = numba.boolean
INTS: Final = numba.int64[::1]
TABLE: Final = numba.int64[:, ::1]
CUBE: Final = numba.int64[:, :, ::1]

_FILES: Final = sorted(Path(__file__).parent.glob("*.py"))
_SOURCE_HASH: Final = sha256(b"".join(path.read_bytes() for path in _FILES)).hexdigest()[:16]
"""Hash of all kernel modules. It is part of cache keys, since numba checks only the file of the kernel itself and not
its imports.
"""

_INNER: Final[dict[str, Any]] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Called by kernels only, so that wrappers need not be compiled."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Kernel:
    """A function that is called from Python, with its argument types."""

    def __init__(self, function: Callable[..., Any], types: tuple[Any, ...]) -> None:
        self.name = f"{function.__module__}.{function.__name__}"
        self.types = types
        self._file = Path(function.__code__.co_filename)
        function.__qualname__ = f"{function.__name__}.{_SOURCE_HASH}"
        self.compiled: Any
        try:
            self.compiled = numba.njit(cache=True, nogil=True)(function)
        except RuntimeError:  # neither __pycache__ next to the file nor the user's cache directory is writable
            self.compiled = numba.njit(nogil=True)(function)

    def load(self) -> bool:
        """Load the machine code; returns whether it had to be compiled because none was cached for this processor."""
        try:
            self.compiled.compile(self.types)
        except OSError:
            # Compiled, but the cache is not writable.
            if self.types not in self.compiled.overloads:
                raise
        except Exception:
            # The cache may be corrupt in any way, such as a truncated file after a power failure.
            self._discard_cache()
            self.compiled.compile(self.types)
        return not self.compiled.stats.cache_hits

    def _discard_cache(self) -> None:
        folder = self.compiled.stats.cache_path
        for path in Path(folder).glob(f"{self._file.stem}.{self.compiled.__name__}.*") if folder else ():
            path.unlink()


_kernels: Final[list[Kernel]] = []


def kernel(*types: Any) -> Callable[[_Function], _Function]:
    """Compile the function for arguments of these types.

    Machine code is cached in __pycache__ next to the file, or in the user's cache directory; if neither is writable,
    each process compiles anew.
    """

    def compiled(function: _Function) -> _Function:
        made = Kernel(function, types)
        _kernels.append(made)
        found: _Function = made.compiled
        return found

    return compiled


def inner(function: _Function) -> _Function:
    """Marks a function that only kernels call."""
    found: Any = numba.njit(**_INNER)(function)
    part: _Function = found
    return part


def kernels() -> tuple[Kernel, ...]:
    """The kernels of all imported modules."""
    return tuple(_kernels)


def all_kernels() -> tuple[Kernel, ...]:
    """The kernels of all modules of this folder, which import this one."""
    for path in _FILES:
        import_module(f"muster.placement.kernels.{path.stem}")
    return kernels()


def precompile() -> None:
    """Compile the kernels without cached machine code, and report how many they were."""
    from rich.console import Console  # services do not load it

    began = time.monotonic()
    loaded = all_kernels()
    compiled = sum(each.load() for each in loaded)
    if compiled:
        seconds = time.monotonic() - began
        Console(stderr=True).print(f"compiled {compiled} of the solver's {len(loaded)} kernels in {seconds:.1f} s")


class InSourceTree(InTreeCacheLocator):
    """Cache locator for images: __pycache__ next to the source, also on a read-only file system.

    numba skips directories that it cannot write to, so every process would compile anew. The image sets
    NUMBA_CACHE_LOCATOR_CLASSES to this class, and NUMBA_CPU_NAME=generic as when its kernels were compiled.
    """

    def ensure_cache_path(self) -> None:
        """Raises OSError if the directory does not exist and cannot be created."""
        Path(self.get_cache_path()).mkdir(exist_ok=True)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    # `kernel` of this module, not of its copy `__main__`, collects the kernels.
    from muster.placement.kernels import compilation

    compilation.precompile()
