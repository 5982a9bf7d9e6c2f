"""Client configuration: address of the API server and credentials, loaded by the rules of the kubernetes package.

Two sources: a kubeconfig (certificates, tokens and token files, exec plugins, OIDC) or the pod's service account. Both
change at run time: tokens and certificates are rotated, plugins issue short-lived ones.
"""

import asyncio
import hashlib
import os
import ssl
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.request import getproxies, proxy_bypass

from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.incluster_config import SERVICE_HOST_ENV_NAME, load_incluster_config
from kubernetes.aio.config.kube_config import ENV_KUBECONFIG_PATH_SEPARATOR, KubeConfigLoader, KubeConfigMerger
from yarl import URL

from muster.config.settings import CannotStart, KubeSettings

_LOAD_SECONDS: Final = 60  # an exec plugin may call a cloud, or prompt a user


class BadKubeconfig(CannotStart):
    """The kubeconfig is invalid, or there is none; the message has its path and what to do."""


@dataclass(frozen=True)
class ClientConfig:
    """The configuration as of one load."""

    server: str
    """URL, possibly with a path, without a trailing slash."""
    authorization: str = field(repr=False)
    """Value of the Authorization header; empty: none."""
    proxy: str | None = field(repr=False)
    """URL of the proxy."""
    tls_server_name: str | None
    """Name that the server's certificate must have; None: the host of the URL."""
    transport_stamp: bytes
    """Digest of server, proxy and certificates; new connections are needed when it changes."""
    _configuration: Configuration = field(repr=False, compare=False)

    def ssl_context(self) -> ssl.SSLContext | None:
        """A context with the certificates as of this load; None for plain HTTP. Raises BadKubeconfig."""
        if not self.server.startswith("https:"):
            return None
        try:
            context: ssl.SSLContext = RESTClientObject(self._configuration).ssl_context
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise BadKubeconfig(f"the certificates for {self.server} cannot be used: {error}") from error
        return context


class ClientConfigSource(ABC):
    """Loads the configuration, repeatedly."""

    @abstractmethod
    async def load(self, *, force: bool) -> ClientConfig:
        """Load the current configuration. `force`: the last credentials were rejected, so bypass caches.

        Raises BadKubeconfig.
        """


def client_config_source(settings: KubeSettings) -> ClientConfigSource:
    """A kubeconfig if it exists, else the pod's service account. Raises BadKubeconfig if there is neither."""
    default = str(Path.home() / ".kube" / "config")
    paths = str(settings.kubeconfig or "") or os.environ.get("KUBECONFIG", "")
    if any(Path(part).expanduser().is_file() for part in (paths or default).split(ENV_KUBECONFIG_PATH_SEPARATOR)):
        return _Kubeconfig(paths or default, settings.context)
    if paths:
        raise BadKubeconfig(f"the kubeconfig {paths!r} does not exist")
    if not os.environ.get(SERVICE_HOST_ENV_NAME):
        raise BadKubeconfig(
            f"no cluster: the kubeconfig {default!r} does not exist, and this is not a pod of a cluster; "
            "set KUBECONFIG, or the path of a kubeconfig in the settings"
        )
    return _ServiceAccount()


class _Loader(KubeConfigLoader):
    """The package's loader; a failing plugin is an error, and a plugin without an expiry is not run at each load."""

    async def load_from_exec_plugin(self) -> bool:
        if hasattr(self, "_has_run") and not hasattr(self, "exec_plugin_expiry"):
            return True  # valid until rejected
        if not await super().load_from_exec_plugin():  # type: ignore[no-untyped-call]
            raise ConfigException("its exec plugin returned no credentials; see the log")
        self._has_run = True
        return True


class _Kubeconfig(ClientConfigSource):
    def __init__(self, paths: str, context: str | None) -> None:
        self._paths, self._context = paths, context
        self._loader: _Loader | None = None

    async def load(self, *, force: bool) -> ClientConfig:
        configuration = Configuration()
        try:
            async with asyncio.timeout(_LOAD_SECONDS):
                if self._loader is None or force:
                    merged = await asyncio.to_thread(KubeConfigMerger, self._paths)
                    self._loader = _Loader(merged.config, self._context, config_base_path=None)  # type: ignore[no-untyped-call]
                await self._loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        except TimeoutError as error:
            raise BadKubeconfig(f"the kubeconfig {self._paths!r} gave no credentials in {_LOAD_SECONDS} s") from error
        except ConfigException as error:
            raise BadKubeconfig(f"the kubeconfig {self._paths!r} cannot be used: {error}") from error
        except Exception as error:
            # Malformed files fail in many ways. Their content is secret, so only the type of the error is reported.
            raise BadKubeconfig(
                f"the kubeconfig {self._paths!r} cannot be read ({type(error).__name__}); check it with kubectl"
            ) from None
        return _client_config(configuration)


class _ServiceAccount(ClientConfigSource):
    async def load(self, *, force: bool) -> ClientConfig:
        configuration = Configuration()
        try:
            load_incluster_config(configuration, try_refresh_token=False)  # type: ignore[no-untyped-call]
        except (ConfigException, OSError) as error:
            raise BadKubeconfig(f"the pod's service account cannot be used: {error}") from error
        return _client_config(configuration)


def _client_config(configuration: Any) -> ClientConfig:
    server = configuration.host.rstrip("/")
    try:
        url = URL(server)
    except ValueError as error:
        raise BadKubeconfig(f"the server {server!r} of the kubeconfig is not valid: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise BadKubeconfig(f"the server {server!r} of the kubeconfig is not a URL like https://HOST:PORT")
    if url.user or url.password:
        raise BadKubeconfig("the server's URL in the kubeconfig has a user or password; move them to its `users`")
    proxy = configuration.proxy or _proxy_of_environment(url)
    parts = [server, proxy or "", configuration.tls_server_name or "", str(configuration.verify_ssl)]
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=16)
    for file in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file):
        try:
            digest.update(b"\0" + Path(file).read_bytes() if file else b"\0")
        except OSError as error:
            raise BadKubeconfig(f"cannot read {file!r}, to which the kubeconfig refers: {error.strerror}") from error
    return ClientConfig(
        server=server,
        # Token files often end with a newline.
        authorization=configuration.api_key.get("BearerToken", "").strip(),
        proxy=proxy,
        tls_server_name=configuration.tls_server_name,
        transport_stamp=digest.digest(),
        _configuration=configuration,
    )


def _proxy_of_environment(url: URL) -> str | None:
    proxy = getproxies().get(url.scheme)
    return proxy if proxy and not proxy_bypass(url.host or "") else None
