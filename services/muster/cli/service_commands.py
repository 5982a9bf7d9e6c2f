"""`muster run SERVICE`: one flag for each field of the service's Settings."""

import gc
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from muster.cli.errors import CliError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from muster.config.settings import ServiceSettings

SERVICES: Mapping[str, tuple[str, str]] = {
    "cluster-state": ("clusterstate", "Read the Kubernetes API and stream the state of the cluster."),
    "placement": ("placement", "Solve the placement of gangs."),
    "first-fit": ("firstfit", "Solve the placement of gangs by first fit, a minimal replacement of placement."),
    "binding": ("binding", "Write binds, conditions and events to the Kubernetes API."),
    "lifecycle": ("lifecycle", "Reconcile PodGroups, QueueJobs and quota."),
    "forecast": ("forecast", "Answer when gangs that wait, or may be submitted, would start."),
    "coordinator": ("coordinator", "Decide when gangs start, and persist their permits."),
    "console": ("console", "Show gangs, nodes and preemptions in a browser, read-only."),
}
"""Name on the command line -> package, purpose."""

_UNPREFIXED_SECTION = "kube"  # its flags are --kubeconfig and --context, as in other programs


class ServiceGroup(TyperGroup):
    """Commands of all services; imports a service's settings when its command is looked up."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(SERVICES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in SERVICES:
            return None
        package, purpose = SERVICES[cmd_name]
        settings = import_service_module(f"muster.{package}.settings").Settings
        app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
        app.command(name=cmd_name, help=purpose)(_command(cmd_name, package, settings))
        return typer.main.get_command(app)


@dataclass(frozen=True)
class Setting:
    """One field of a Settings model with its flag and environment variable."""

    path: tuple[str, ...]
    field: "FieldInfo"
    environment: str

    @property
    def identifier(self) -> str:
        return "__".join(self.path)

    @property
    def flag(self) -> str:
        path = self.path[1:] if self.path[0] == _UNPREFIXED_SECTION else self.path
        return "--" + "-".join(path).replace("_", "-")

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The annotation's alternatives without None."""
        annotation = self.field.annotation
        if typing.get_origin(annotation) in (typing.Union, types.UnionType):
            return tuple(kind for kind in typing.get_args(annotation) if kind is not types.NoneType)
        return (annotation,)

    @property
    def many(self) -> bool:
        return any(typing.get_origin(kind) in (tuple, list, set, frozenset) for kind in self.kinds)

    @property
    def default(self) -> str:
        """Default for the help text; empty if there is none to show."""
        if self.field.is_required():
            return "required"
        value = self.field.get_default(call_default_factory=True, validated_data={})
        if value is None or value == "":
            return ""
        if isinstance(value, (tuple, list)):
            return ",".join(map(str, value))
        return str(value)


def settings_of(model: "type[ServiceSettings]") -> list[Setting]:
    """All fields of a Settings model, nested ones by their path."""
    config = model.model_config
    prefix = config.get("env_prefix") or ""
    return list(_leaves(model, (), prefix, config.get("env_nested_delimiter") or "__"))


def _leaves(model: "type[BaseModel]", path: tuple[str, ...], prefix: str, delimiter: str) -> Iterator[Setting]:
    from pydantic import BaseModel

    for name, field in model.model_fields.items():
        inner = field.annotation
        if inspect.isclass(inner) and issubclass(inner, BaseModel):
            yield from _leaves(inner, (*path, name), prefix, delimiter)
        else:
            yield Setting((*path, name), field, (prefix + delimiter.join((*path, name))).upper())


def _command(service: str, package: str, model: "type[ServiceSettings]") -> Callable[..., None]:
    settings = settings_of(model)

    def command(**given: Any) -> None:
        values: dict[str, Any] = {}
        for setting in settings:
            if (value := given[setting.identifier]) not in (None, [], ()):
                inner = values
                for name in setting.path[:-1]:
                    inner = inner.setdefault(name, {})
                inner[setting.path[-1]] = _listed(value) if setting.many else value
        _run(service, package, _loaded(model, values, settings))

    parameters = [_parameter(setting) for setting in settings]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _parameter(setting: Setting) -> inspect.Parameter:
    kind: Any = str
    names = [setting.flag]
    if setting.kinds == (bool,):
        kind, names = bool, [f"{setting.flag}/--no-{setting.flag[2:]}"]
    elif setting.many:
        kind = list[str]
    default = f"Default: {setting.default}. " if setting.default else ""
    text = f"{setting.field.description or ''} {default}[{setting.environment}]".strip()
    option = typer.Option(*names, help=text, show_default=False, metavar=None if kind is bool else _metavar(setting))
    return inspect.Parameter(
        setting.identifier, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _metavar(setting: Setting) -> str:
    choices = [
        str(choice)
        for kind in setting.kinds
        if typing.get_origin(kind) is typing.Literal
        for choice in typing.get_args(kind)
    ]
    if choices:
        return "|".join(choices)
    name = setting.path[-1]
    if name.endswith("_file") or name == "kubeconfig":
        return "FILE"
    if name.endswith("seconds"):
        return "SECONDS"
    return "TEXT" if setting.kinds != (int,) else "NUMBER"


def _listed(values: list[str]) -> list[str]:
    """Values of a flag that may be repeated or have commas."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def _loaded(model: "type[ServiceSettings]", flags: Mapping[str, Any], settings: list[Setting]) -> "ServiceSettings":
    from muster.config.settings import BadSettings, load

    try:
        return load(model, flags)
    except BadSettings as error:
        lines = [_with_flag(line, settings) for line in str(error).splitlines()]
        raise CliError("invalid settings:\n  " + "\n  ".join(lines), usage=True) from error


def _with_flag(line: str, settings: list[Setting]) -> str:
    """The line with the flag before the environment variable that it begins with."""
    variable, colon, rest = line.partition(":")
    flags = {setting.environment: setting.flag for setting in settings}
    return f"{flags[variable]} or {variable}{colon}{rest}" if variable in flags else line


def _run(service: str, package: str, settings: Any) -> None:
    from muster.config.settings import CannotStart
    from muster.rpc.process import run_async
    from muster.telemetry.logs import configure_logs
    from muster.telemetry.otlp import BadTracing
    from muster.telemetry.tracing import configure_tracing

    configure_logs(service, settings.log_level, settings.log_format)
    try:
        shutdown = configure_tracing(service, settings.instance)
    except BadTracing as error:
        raise CliError(str(error), usage=True) from error
    try:
        run_async(_served(service, import_service_module(f"muster.{package}.service").run, settings))
    except Exception as error:
        causes = list(_leaves_of(error))
        if not all(isinstance(cause, CannotStart) for cause in causes):
            raise
        raise CliError("; ".join(map(str, causes))) from error
    finally:
        shutdown()


async def _served(service: str, run: Callable[[Any], Awaitable[None]], settings: Any) -> None:
    """Run a service, and serve its metrics if metrics_listen is set."""
    if settings.metrics_listen is None:
        await run(settings)
        return
    from muster.telemetry.metrics_enabled import enable_metrics
    from muster.telemetry.metrics_server import serving_metrics

    enable_metrics()
    async with serving_metrics(settings.metrics_listen, service):
        await run(settings)


def _leaves_of(error: Exception) -> Iterator[Exception]:
    """The errors of an exception group, at any depth."""
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves_of(inner)
    else:
        yield error


def import_service_module(module: str) -> types.ModuleType:
    """Import a module of a service in less time: without collections of garbage, which take a fifth of it and find
    hardly anything, and without rich, which takes a tenth and which structlog loads for tracebacks in colour.
    """
    gc.disable()
    try:
        with _as_if_not_installed("rich"):
            return importlib.import_module(module)
    finally:
        gc.enable()


@contextmanager
def _as_if_not_installed(package: str) -> Iterator[None]:
    """Imports of the package fail within the block."""
    loaded = sys.modules.get(package)
    sys.modules[package] = None  # type: ignore[assignment]  # (the import system's mark)
    try:
        yield
    finally:
        del sys.modules[package]
        if loaded is not None:
            sys.modules[package] = loaded
