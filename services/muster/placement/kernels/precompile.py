"""All kernels of the solver; as a program, it compiles and caches their machine code."""

import time
from typing import Final

from rich.console import Console

from muster.placement.kernels import bounds, costs, divide, search
from muster.placement.kernels.compilation import Kernel, kernels

_MODULES: Final = (bounds, costs, divide, search)

KERNELS: Final[tuple[Kernel, ...]] = kernels()


def main() -> None:
    began = time.monotonic()
    compiled = sum(each.load() for each in KERNELS)
    seconds = time.monotonic() - began
    if compiled:
        Console(stderr=True).print(f"compiled {compiled} of the solver's {len(KERNELS)} kernels in {seconds:.1f} s")


if __name__ == "__main__":
    main()
