"""Settings of the console."""

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import SettingsConfigDict

from muster.config.settings import (
    CONSOLE_PORT,
    Address,
    KubeSettings,
    ServerCertificate,
    ServiceSettings,
    is_loopback,
    listens_on,
)


class HttpsSettings(ServerCertificate):
    """Certificate that browsers see, for the name that people enter; that of `tls` if it is not given."""


CERTIFICATE_OF_TLS: Final = HttpsSettings()


def _authentication(before: dict[str, Any]) -> Literal["token", "none"]:
    return "none" if is_loopback(before.get("listen", "")) else "token"


class Settings(ServiceSettings):
    """Read from MUSTER_CONSOLE_* and flags."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_CONSOLE_", env_nested_delimiter="__", frozen=True)

    listen: Address = listens_on(CONSOLE_PORT)
    """Address of the HTTP server; HTTPS with TLS. Default without TLS: 127.0.0.1; with TLS, or if insecure: 0.0.0.0."""
    https: HttpsSettings = CERTIFICATE_OF_TLS
    kube: KubeSettings = Field(default_factory=KubeSettings)
    cluster_state: str = "127.0.0.1:7001"
    """Address of cluster-state: HOST:PORT, or dns:///NAME:PORT for all replicas behind a name."""
    coordinator: str = "127.0.0.1:7002"
    """Address of the coordinator, as cluster_state."""
    forecast: str = ""
    """Address of the service forecast, as cluster_state; empty: no what-if, and no expected starts."""
    authentication: Literal["token", "none"] = Field(default_factory=_authentication)
    """token: people give a token of Kubernetes, and see what they may read there; none: everybody sees everything, only
    if `listen` is an address of loopback, where it is the default."""
    trace_url: str = Field(default="", pattern=r"^(https?://[^\s\"<>]*\{trace_id\}[^\s\"<>]*)?$")
    """URL of a trace in a tracing backend, with {trace_id}: "http://jaeger:16686/trace/{trace_id}". Empty: no link."""

    @field_validator("authentication")
    @classmethod
    def _open_on_loopback_only(cls, authentication: str, info: ValidationInfo) -> str:
        if authentication == "none" and not is_loopback(info.data.get("listen", "127.0.0.1:0")):
            raise ValueError(
                "anyone in the network could see all gangs: authenticate people by token, or listen on 127.0.0.1"
            )
        return authentication

    @property
    def https_files(self) -> tuple[Path, Path] | None:
        """Certificate and key of the HTTP server; None: plain HTTP."""
        if self.https.certificate_file is not None and self.https.key_file is not None:
            return self.https.certificate_file, self.https.key_file
        return self.tls.files[:2] if self.tls.files is not None else None
