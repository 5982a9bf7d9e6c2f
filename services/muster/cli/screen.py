"""Where output goes: a terminal with its width and colours, or a file or pipe, which have neither."""

import sys

from rich.console import Console, RenderableType

_WIDE = 10_000  # lines in files and pipes are as long as they are


def show(*parts: RenderableType) -> None:
    """Print to stdout: fitted to a terminal, else one line per row without padding at its end."""
    if sys.stdout.isatty():
        console = Console(highlight=False)
        for part in parts:
            console.print(part)
        return
    console = Console(highlight=False, width=_WIDE, color_system=None)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    lines = (line.rstrip() for line in captured.get().splitlines())
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def terminal_columns() -> int:
    """Width of the terminal; very wide when there is none."""
    return Console().width if sys.stdout.isatty() else _WIDE
