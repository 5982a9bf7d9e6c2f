"""Settings that every service has, read from MUSTER_<SERVICE>_* in the environment or given as flags."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

CLUSTER_STATE_PORT: Final = 7001
COORDINATOR_PORT: Final = 7002
PLACEMENT_PORT: Final = 7003
BINDING_PORT: Final = 7004
LIFECYCLE_PORT: Final = 7005
QUOTA_PORT: Final = 9443

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["json", "console"]


class BadSettings(ValueError):
    """Settings do not make sense; the message has a line per mistake, with its variable, the value and the rule."""


class CannotStart(RuntimeError):
    """What a service was given cannot be used: a file, an address, a cluster. The message says which and why.

    Errors of that kind are subclasses; `muster run` prints their message and exits.
    """


def _address(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError("an address is HOST:PORT with a port from 0 to 65535, e.g. 0.0.0.0:7001")
    return value


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _instance() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


Address = Annotated[str, AfterValidator(_address)]
"""HOST:PORT; port 0 takes any free one."""

Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split), Field(min_length=1)]
"""One or more names; in the environment separated by commas."""


_TLS_FILES: Final = ("certificate_file", "key_file", "ca_file")


class TlsSettings(BaseModel):
    """Mutual TLS, when all three files (PEM) are given; plain text when none is."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    certificate_file: Path | None = None
    """Certificate of this process, with its chain."""
    key_file: Path | None = None
    """Its private key."""
    ca_file: Path | None = None
    """Who signs the certificates of peers."""

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        given = [name for name in _TLS_FILES if getattr(self, name) is not None]
        if given and len(given) < len(_TLS_FILES):
            missing = ", ".join(name for name in _TLS_FILES if name not in given)
            raise ValueError(f"only {', '.join(given)} given; mutual TLS also needs {missing}")
        return self

    @property
    def files(self) -> tuple[Path, Path, Path] | None:
        """Certificate, key and CA; None for plain text."""
        if self.certificate_file is None or self.key_file is None or self.ca_file is None:
            return None
        return self.certificate_file, self.key_file, self.ca_file


class ServerTlsSettings(TlsSettings):
    """Mutual TLS of a process that also serves."""

    clients: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)] = ()
    """Whom it answers: DNS names, one of which the caller's certificate must be for. None: whoever has one."""

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        if self.clients and self.files is None:
            raise ValueError("clients are told apart by their certificates, and no certificate is given")
        return self


PLAIN_TEXT: Final = ServerTlsSettings()
"""No TLS: for one machine and for tests."""


class KubeSettings(BaseModel):
    """Which API server, and as whom."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kubeconfig: Path | None = None
    """None: $KUBECONFIG or the default file, else the service account of the pod that this runs in."""
    context: str | None = None
    """Context in the kubeconfig; None: its current one."""


class ServiceSettings(BaseSettings):
    """Settings of any service. Each service makes its own of it, with `env_prefix` and a default for `listen`.

    Kubernetes puts MUSTER_<SERVICE>_PORT, _SERVICE_HOST and the like into pods, so no setting may be named `port`,
    `port_*` or `service_*`, and variables that name no setting must be passed over.
    """

    model_config = SettingsConfigDict(env_nested_delimiter="__", frozen=True, use_attribute_docstrings=True)

    listen: Address
    """Where it serves, e.g. "0.0.0.0:7001"."""
    instance: str = Field(default_factory=_instance, min_length=1, max_length=253)
    """Name of this replica in logs, traces and the leader key."""
    log_level: LogLevel = "info"
    log_format: LogFormat = "json"
    tls: ServerTlsSettings = PLAIN_TEXT
    health_listen: Address | None = None
    """Where it serves the gRPC health service without TLS, for probes of Kubernetes, which cannot have any, e.g.
    "0.0.0.0:8081". None: only where it serves."""
    metrics_listen: Address | None = None
    """Where it serves its metrics by HTTP at /metrics, e.g. "0.0.0.0:8080". None: nowhere."""
    reflection: bool = False
    """Tell whoever may call what can be called and how, for grpcurl and the like."""


_Settings = TypeVar("_Settings", bound=ServiceSettings)


def load(settings: type[_Settings], flags: Mapping[str, Any] | None = None) -> _Settings:
    """Settings from the environment; flags that are not None win over it. Raises BadSettings."""
    try:
        return settings(**{name: value for name, value in (flags or {}).items() if value is not None})
    except ValidationError as error:
        prefix = settings.model_config.get("env_prefix", "")
        lines = []
        for mistake in error.errors():
            name = prefix + "__".join(str(part) for part in mistake["loc"]).upper()
            if mistake["type"] == "missing":
                lines.append(f"{name}: must be set")
            else:
                lines.append(f"{name}: {mistake['msg'].removeprefix('Value error, ')}, got {mistake['input']!r:.200}")
        raise BadSettings("\n".join(lines)) from None
