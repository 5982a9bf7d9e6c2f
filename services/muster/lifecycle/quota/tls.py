"""TLS of the webhook's server, from files that may be replaced under it: each new connection gets what is there now."""

import ssl
from pathlib import Path

import structlog

from muster.config.settings import CannotStart
from muster.rpc.credentials import UnreadableCertificate, tell_expiry

_log = structlog.get_logger(__name__)


class BadWebhookCertificate(CannotStart):
    """A certificate or key of the webhook cannot be used; the message names the files."""


class ReloadedTls:
    """The server's side of TLS. With `client_ca_file`, clients must have a certificate that it signed."""

    def __init__(self, certificate_file: Path, key_file: Path, client_ca_file: Path | None) -> None:
        """Raises BadWebhookCertificate."""
        self._certificate, self._key, self._client_ca = certificate_file, key_file, client_ca_file
        self._stamp = self._stamped()
        self._current = self._loaded()
        self.context = self._loaded()
        """For the server to listen with."""
        self.context.sni_callback = self._at_handshake

    def _at_handshake(self, connection: ssl.SSLObject | ssl.SSLSocket, _: object, __: object) -> None:
        self._refresh()
        connection.context = self._current

    def _refresh(self) -> None:
        try:
            stamp = self._stamped()
            if stamp == self._stamp:
                return
            self._current = self._loaded()
        except BadWebhookCertificate as error:  # in the middle of being replaced: the old ones serve on
            _log.warning("the webhook's certificate could not be read anew", error=str(error))
            return
        self._stamp = stamp
        _log.info("the webhook has a new certificate")

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate, self._key)
            tell_expiry(str(self._certificate), self._certificate.read_bytes())
            if self._client_ca is not None:
                context.load_verify_locations(self._client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError, UnreadableCertificate) as error:
            files = ", ".join(str(each) for each in self._files)
            raise BadWebhookCertificate(f"TLS of the quota webhook cannot be had from {files}: {error}") from error
        return context

    def _stamped(self) -> tuple[tuple[int, int], ...]:
        try:
            return tuple((status.st_mtime_ns, status.st_ino) for status in (each.stat() for each in self._files))
        except OSError as error:
            raise BadWebhookCertificate(f"cannot read {error.filename}: {error.strerror}") from error

    @property
    def _files(self) -> tuple[Path, ...]:
        return tuple(each for each in (self._certificate, self._key, self._client_ca) if each is not None)
