"""What goes wrong on the command line, in words for the user, and the exit code that says so to scripts."""

import sys


class CliError(Exception):
    """`message` says what happened, `hint` what to do."""

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
