"""Deletes from the image what Muster never loads: python prune.py SITE_PACKAGES, or python prune.py --base.

With --base it deletes from the file system in which it runs, that of the base image: package installers, and parts of
the standard library.

The services read Kubernetes' JSON themselves: of its client they use configuration and connections only, not the
classes of every kind. The names of a package stay, so that the bill of materials is true.
"""

import shutil
import subprocess
import sys
import sysconfig
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
_BASE_LIBRARY: Final = ("ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter", "turtledemo")
"""Parts of the standard library."""
_INSTALLERS: Final = ("pip", "setuptools", "wheel", "pkg_resources", "_distutils_hack", "distutils-precedence.pth")
"""Packages, with their metadata, and what setuptools adds."""
_SYSTEM: Final = (
    *("usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man", "usr/share/python-wheels"),
    *("usr/bin/perl*", "usr/lib/*/perl-base", "usr/share/perl5", "usr/lib/*/gconv"),
)
"""Documents, Perl, which only installs packages, and tables of character sets for programs in C."""


def unused_in_base() -> Iterator[Path]:
    """Files and directories of the base image to delete."""
    library = Path(sysconfig.get_path("stdlib"))
    yield from (library / part for part in _BASE_LIBRARY)
    for packages in (Path(sysconfig.get_path("purelib")), Path("/usr/lib/python3/dist-packages")):
        yield from (path for name in _INSTALLERS for path in (packages / name, *packages.glob(f"{name}-*")))
    yield from (path for pattern in _SYSTEM for path in Path("/").glob(pattern))


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


def delete(paths: list[Path]) -> None:
    """Delete files and directories, some of which may be within others, or not be there."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def main() -> None:
    if sys.argv[1] == "--base":
        delete(list(unused_in_base()))
        return
    packages = Path(sys.argv[1])
    delete(list(unused(packages)))
    libraries = [str(library) for package in _SYMBOLS for library in (packages / package).rglob("*.so")]
    subprocess.run(["strip", "--strip-unneeded", *libraries], check=True)


if __name__ == "__main__":
    main()
