"""Commands of other distributions."""

from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner

from muster.cli import plugins
from muster.cli.errors import CliError
from muster.cli.main import app


def install(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    def entry_points(*, group: str, name: str = "") -> list[EntryPoint]:
        assert group == "muster.commands"
        return [point for point in points if name in ("", point.name)]

    monkeypatch.setattr(plugins, "entry_points", entry_points)


def test_without_the_extra_up_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    ran = CliRunner().invoke(app, ["up"])
    assert isinstance(ran.exception, CliError)
    assert ran.exception.message == "`muster up` needs muster[local], which is not installed"
    assert ran.exception.hint == 'pip install "muster[local]"'
    assert ran.exception.exit_code == 2


def test_an_unknown_command_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    ran = CliRunner().invoke(app, ["dance"])
    assert ran.exit_code == 2
    assert "No such command 'dance'" in ran.output


def test_other_commands_do_not_import_those_of_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, EntryPoint("up", "no.such.module:up", plugins.GROUP))
    assert CliRunner().invoke(app, ["version"]).exit_code == 0


def test_help_lists_commands_of_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, EntryPoint("up", "muster.localcluster.up.command:up", plugins.GROUP))
    ran = CliRunner().invoke(app, ["--help"])
    assert ran.exit_code == 0
    assert "Run a cluster on this machine with example gangs" in ran.output
    assert "--nodes" in CliRunner().invoke(app, ["up", "--help"]).output
