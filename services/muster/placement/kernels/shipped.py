"""Machine code that came with an image: taken from beside its file also where nothing can be written.

numba passes over a directory that it cannot write to, so on a read-only file system every process would compile anew.
An image says NUMBA_CACHE_LOCATOR_CLASSES=muster.placement.kernels.shipped.BesideTheFile and NUMBA_CPU_NAME=generic, for
which its kernels were compiled when it was made.
"""

from pathlib import Path

from numba.core.caching import InTreeCacheLocator


class BesideTheFile(InTreeCacheLocator):
    """__pycache__ beside the kernels' file, as long as it is there."""

    def ensure_cache_path(self) -> None:
        """Raises OSError if it is not there and cannot be made."""
        Path(self.get_cache_path()).mkdir(exist_ok=True)  # type: ignore[no-untyped-call]
