"""Settings common to all services, from MUSTER_<SERVICE>_* in the environment or from flags."""

import os
import socket
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

CLUSTER_STATE_PORT: Final = 7001
COORDINATOR_PORT: Final = 7002
PLACEMENT_PORT: Final = 7003
BINDING_PORT: Final = 7004
LIFECYCLE_PORT: Final = 7005
FORECAST_PORT: Final = 7006
CONSOLE_PORT: Final = 7007
QUOTA_PORT: Final = 9443
DEVICES_PORT: Final = 9444

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["json", "console"]


class BadSettings(ValueError):
    """Settings are invalid; the message has a line for each mistake, with the variable, the value and the rule."""


class CannotStart(RuntimeError):
    """A service cannot use a file, an address or a cluster that its settings name; the message says which and why.

    Base class of such errors; `muster run` prints their message and exits.
    """


def parse_address(value: str) -> str:
    """Returns an address HOST:PORT as it is. Raises ValueError."""
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError("an address is HOST:PORT with a port from 0 to 65535, e.g. 0.0.0.0:7001")
    return value


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _instance() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


Address = Annotated[str, AfterValidator(parse_address)]
"""HOST:PORT; port 0 selects a free port."""

Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split), Field(min_length=1)]
"""One or more names; separated by commas in the environment."""


_TLS_FILES: Final = ("certificate_file", "key_file", "ca_file")


class TlsSettings(BaseModel):
    """Mutual TLS if all three files (PEM) are given; plain text if none is."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    certificate_file: Path | None = None
    """Certificate chain of this process."""
    key_file: Path | None = None
    """Private key of the certificate."""
    ca_file: Path | None = None
    """CA certificates that sign the certificates of peers."""

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
    """DNS names, one of which a client's certificate must contain. None: every certificate is accepted."""

    @model_validator(mode="after")
    def _need_certificates(self) -> Self:
        if self.clients and self.files is None:
            raise ValueError("clients are identified by their certificates, but no certificate files are given")
        return self


PLAIN_TEXT: Final = ServerTlsSettings()
"""No TLS: for one machine and for tests."""


def listens_on(port: int) -> Any:
    """The field `listen` of a service: loopback, or all addresses if TLS is configured or `insecure` is set."""

    def default(before: Mapping[str, Any]) -> str:
        return f"{'0.0.0.0' if _may_listen_on_the_network(before) else '127.0.0.1'}:{port}"  # noqa: S104

    return Field(default_factory=default)


def _may_listen_on_the_network(settings: Mapping[str, Any]) -> bool:
    return bool(settings.get("insecure")) or settings.get("tls", PLAIN_TEXT).files is not None


def is_loopback(address: str) -> bool:
    """Whether HOST:PORT is an address that only this machine reaches."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ServerCertificate(BaseModel):
    """Certificate of a server and its private key (PEM), or none of both."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    certificate_file: Path | None = None
    """Certificate chain for the name by which clients call. Reloaded when it changes."""
    key_file: Path | None = None
    """Private key of the certificate."""

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.certificate_file is None) is not (self.key_file is None):
            missing = "key_file" if self.key_file is None else "certificate_file"
            raise ValueError(f"certificate_file and key_file must be set together: {missing} is missing")
        return self


class KubeSettings(BaseModel):
    """Connection to the API server."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kubeconfig: Path | None = None
    """None: $KUBECONFIG or the default file, else the service account of the pod."""
    context: str | None = None
    """Context in the kubeconfig; None: its current one."""


class ServiceSettings(BaseSettings):
    """Base class of the settings of services, which set `env_prefix` and a default for `listen`.

    Kubernetes sets MUSTER_<SERVICE>_PORT, _SERVICE_HOST and the like in pods, so no setting may be named `port`,
    `port_*` or `service_*`, and unknown variables must be ignored.
    """

    model_config = SettingsConfigDict(env_nested_delimiter="__", frozen=True, use_attribute_docstrings=True)

    instance: str = Field(default_factory=_instance, min_length=1, max_length=253)
    """Name of this replica in logs, traces and the leader key."""
    log_level: LogLevel = "info"
    log_format: LogFormat = "json"
    tls: ServerTlsSettings = PLAIN_TEXT
    insecure: bool = False
    """Allow `listen` to be an address of the network although no TLS is configured: anyone there can call this service.
    """
    listen: Address
    """Address of the gRPC server. Default without TLS: 127.0.0.1; with TLS, or if insecure: 0.0.0.0."""
    health_listen: Address | None = None
    """Address of the gRPC health service without TLS, for Kubernetes probes, which do not support TLS, e.g.
    "0.0.0.0:8081". None: health is served at `listen` only."""
    metrics_listen: Address | None = None
    """Address of the HTTP server for /metrics, e.g. "0.0.0.0:8080". None: no metrics."""
    reflection: bool = False
    """Serve gRPC reflection, for grpcurl and similar tools."""

    @field_validator("listen")
    @classmethod
    def _protected(cls, listen: str, info: ValidationInfo) -> str:
        if "tls" in info.data and not _may_listen_on_the_network(info.data) and not is_loopback(listen):
            raise ValueError(
                "this address can be reached from the network, and no TLS is configured, so that anyone there could "
                "call: give tls certificate_file, key_file and ca_file, listen on 127.0.0.1, or set insecure"
            )
        return listen


_Settings = TypeVar("_Settings", bound=ServiceSettings)


def load(settings: type[_Settings], flags: Mapping[str, Any] | None = None) -> _Settings:
    """Settings from the environment, overridden by flags that are not None. Raises BadSettings."""
    try:
        return settings(**{name: value for name, value in (flags or {}).items() if value is not None})
    except ValidationError as error:
        prefix = settings.model_config.get("env_prefix", "")
        lines = []
        for mistake in error.errors():
            if mistake["type"] == "default_factory_not_called":
                continue  # because another setting is wrong
            name = prefix + "__".join(str(part) for part in mistake["loc"]).upper()
            if mistake["type"] == "missing":
                lines.append(f"{name}: must be set")
            else:
                lines.append(f"{name}: {mistake['msg'].removeprefix('Value error, ')}, got {mistake['input']!r:.200}")
        raise BadSettings("\n".join(lines)) from None
