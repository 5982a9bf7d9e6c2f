"""TLS of a webhook's server. Reloads certificate files when they change, for new connections."""

import ssl
from pathlib import Path

import structlog

from muster.config.settings import CannotStart
from muster.rpc.credentials import UnreadableCertificate, expose_expiry

_log = structlog.get_logger(__name__)


class BadWebhookCertificate(CannotStart):
    """An unusable certificate or key of the webhook; the message names the files."""


class ReloadedTls:
    """The server's TLS context. With `client_ca_file`, clients must have a certificate that it signed."""

    def __init__(self, name: str, certificate_file: Path, key_file: Path, client_ca_file: Path | None) -> None:
        """`name` is that of the webhook in errors. Raises BadWebhookCertificate."""
        self._name = name
        self._certificate, self._key, self._client_ca = certificate_file, key_file, client_ca_file
        self._version = self._file_versions()
        self._current = self._load()
        self.context = self._load()
        """The context of the listening server."""
        self.context.sni_callback = self._at_handshake

    def _at_handshake(self, connection: ssl.SSLObject | ssl.SSLSocket, _: object, __: object) -> None:
        self._refresh()
        connection.context = self._current

    def _refresh(self) -> None:
        try:
            version = self._file_versions()
            if version == self._version:
                return
            self._current = self._load()
        except BadWebhookCertificate as error:  # the files are being replaced: the old ones stay in use
            _log.warning("webhook_certificate_reload_failed", error=str(error))
            return
        self._version = version
        _log.info("webhook_certificate_reloaded")

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate, self._key)
            expose_expiry(str(self._certificate), self._certificate.read_bytes())
            if self._client_ca is not None:
                context.load_verify_locations(self._client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError, UnreadableCertificate) as error:
            files = ", ".join(str(each) for each in self._files)
            what = f"TLS of the {self._name} webhook"
            raise BadWebhookCertificate(f"{what} cannot be set up from {files}: {error}") from error
        return context

    def _file_versions(self) -> tuple[tuple[int, int], ...]:
        try:
            return tuple((status.st_mtime_ns, status.st_ino) for status in (each.stat() for each in self._files))
        except OSError as error:
            raise BadWebhookCertificate(f"cannot read {error.filename}: {error.strerror}") from error

    @property
    def _files(self) -> tuple[Path, ...]:
        return tuple(each for each in (self._certificate, self._key, self._client_ca) if each is not None)
