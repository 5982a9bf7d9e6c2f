"""Deletes from the packages of the image what Muster never loads: python prune.py SITE_PACKAGES.

The services read Kubernetes' JSON themselves: of its client they use configuration and connections only, not the classes
of every kind. The names of a package stay, so that the bill of materials is true.
"""

import shutil
import subprocess
import sys
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
_TESTS_OF: Final = ("numpy", "numba", "grpc", "google", "opentelemetry")
_SOURCES: Final = {".a", ".c", ".cpp", ".h", ".hpp", ".pxd", ".pyi", ".pyx"}
"""Suffixes of files for compilers and type checkers."""
_SYMBOLS: Final = ("llvmlite", "uvloop")
"""Packages whose libraries have symbols that only a debugger reads; others are stripped or cannot be (numpy's)."""


def main() -> None:
    packages = Path(sys.argv[1])
    for generated in _GENERATED:
        for module in (packages / generated).glob("*.py"):
            if module.name != "__init__.py":
                module.unlink()
    for unused in _UNUSED:
        shutil.rmtree(packages / unused)
    for package in _TESTS_OF:
        for tests in [path for path in (packages / package).rglob("tests") if path.is_dir()]:
            shutil.rmtree(tests, ignore_errors=True)  # one within another is deleted already
    for file in packages.rglob("*"):
        if file.suffix in _SOURCES and file.is_file():
            file.unlink()
    libraries = [str(library) for package in _SYMBOLS for library in (packages / package).rglob("*.so")]
    subprocess.run(["strip", "--strip-unneeded", *libraries], check=True)


if __name__ == "__main__":
    main()
