"""Deletes from the packages of the image what Muster never loads: python prune.py SITE_PACKAGES.

The services read Kubernetes' JSON themselves: of its client they use configuration and connections only, not the
classes of every kind. The names of a package stay, so that the bill of materials is true.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_GENERATED: Final = (
    "kubernetes/client/models",
    "kubernetes/client/api",
    "kubernetes/aio/client/models",
    "kubernetes/aio/client/api",
)
"""Packages with a class for each kind, which are imported on first use; their __init__.py stays."""
_UNUSED: Final = ("numba/cuda", "numba/tests", "llvmlite/tests", "numpy/f2py", "numpy/distutils")
_TESTED: Final = ("numpy", "numba", "grpc", "google", "opentelemetry")
"""Packages with directories of tests at any depth."""
_SOURCES: Final = {".a", ".c", ".cpp", ".h", ".hpp", ".pxd", ".pyi", ".pyx"}
"""Suffixes of files for compilers and type checkers."""
_LEXERS: Final = {"__init__.py", "_mapping.py", "python.py"}
"""Of pygments: the table of its lexers, and that of tracebacks."""
_SYMBOLS: Final = ("aiohttp", "frozenlist", "llvmlite", "multidict", "numba", "propcache", "uvloop", "yaml")
"""Packages whose libraries have symbols that only a debugger reads; others have none, or break (those of numpy)."""


def unused(packages: Path) -> Iterator[Path]:
    """Files and directories to delete; some may be within others."""
    for generated in _GENERATED:
        yield from (file for file in (packages / generated).glob("*.py") if file.name != "__init__.py")
    yield from (file for file in (packages / "pygments" / "lexers").glob("*.py") if file.name not in _LEXERS)
    for directory in _UNUSED:
        yield packages / directory
    for package in _TESTED:
        yield from (path for path in (packages / package).rglob("tests") if path.is_dir())
    yield from (file for file in packages.rglob("*") if file.suffix in _SOURCES and file.is_file())


def main() -> None:
    packages = Path(sys.argv[1])
    for path in list(unused(packages)):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    libraries = [str(library) for package in _SYMBOLS for library in (packages / package).rglob("*.so")]
    subprocess.run(["strip", "--strip-unneeded", *libraries], check=True)


if __name__ == "__main__":
    main()
