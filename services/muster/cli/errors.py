"""Errors of the command line: a message and a hint on stderr, and an exit code."""

import contextlib
import sys
from collections.abc import Iterator


class CliError(Exception):
    """`message` says what happened, `hint` what to do. Exit code 2 for wrong usage, else 1."""

    def __init__(self, message: str, *, hint: str = "", usage: bool = False) -> None:
        super().__init__(message)
        self.message, self.hint, self.exit_code = message, hint, 2 if usage else 1

    def show(self) -> None:
        """Print it to stderr."""
        from rich.console import Console
        from rich.markup import escape

        console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        console.print(f"[bold red]error:[/] {escape(self.message)}")
        if self.hint:
            console.print(f"[dim]{escape(self.hint)}[/]")


@contextlib.contextmanager
def exit_on_error() -> Iterator[None]:
    """Turn errors into messages and exit codes, at the entry point of a program."""
    try:
        yield
    except CliError as error:
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `muster gangs | head`
        sys.stderr.close()
        sys.exit(141)
