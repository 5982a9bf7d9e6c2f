"""Commands that other distributions contribute by entry points of the group `muster.commands`.

An entry point names a function with Typer parameters. It is imported only when its command or --help is asked for.
"""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Final

import typer
from typer.core import TyperGroup

from muster.cli.errors import CliError

GROUP: Final = "muster.commands"
_EXTRAS: Final[Mapping[str, str]] = {"up": "local"}
"""Commands of Muster's own extras."""


class PluginGroup(TyperGroup):
    """Commands of this distribution, then those of entry points."""

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *sorted({point.name for point in entry_points(group=GROUP)} - set(own))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if (own := super().get_command(ctx, cmd_name)) is not None:
            return own
        for point in entry_points(group=GROUP, name=cmd_name):
            app = typer.Typer(rich_markup_mode="rich", add_completion=False, pretty_exceptions_enable=False)
            app.command(name=cmd_name)(point.load())
            return typer.main.get_command(app)
        if (extra := _EXTRAS.get(cmd_name)) is not None:
            hint = f'pip install "muster[{extra}]"'
            raise CliError(f"`muster {cmd_name}` needs muster[{extra}], which is not installed", hint=hint, usage=True)
        return None
