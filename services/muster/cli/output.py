"""Output to a terminal with its width and colours, or to a file or pipe without either."""

import sys

from rich.console import Console, RenderableType

_UNLIMITED_COLUMNS = 10_000  # lines in files and pipes are not wrapped


def show(*parts: RenderableType) -> None:
    """Print to stdout: fitted to a terminal, else one line per row without trailing padding."""
    if sys.stdout.isatty():
        console = Console(highlight=False)
        for part in parts:
            console.print(part)
        return
    console = Console(highlight=False, width=_UNLIMITED_COLUMNS, color_system=None)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    lines = (line.rstrip() for line in captured.get().splitlines())
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def terminal_columns() -> int:
    """Width of the terminal; practically unlimited when stdout is none."""
    return Console().width if sys.stdout.isatty() else _UNLIMITED_COLUMNS
