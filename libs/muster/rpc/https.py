"""TLS of HTTPS servers. Reloads certificate files when they change, for new connections."""

import ssl
from pathlib import Path

import structlog

from muster.config.settings import CannotStart
from muster.rpc.credentials import UnreadableCertificate, expose_expiry

_log = structlog.get_logger(__name__)


class BadServerCertificate(CannotStart):
    """An unusable certificate or key of an HTTPS server; the message names the server and the files."""


class ReloadedTls:
    """The server's TLS context. With `client_ca_file`, clients must have a certificate that it signed."""

    def __init__(self, server: str, certificate_file: Path, key_file: Path, client_ca_file: Path | None = None) -> None:
        """`server`: its name in errors, e.g. "the quota webhook". Raises BadServerCertificate."""
        self._server = server
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
        except BadServerCertificate as error:  # the files are being replaced: the old ones stay in use
            _log.warning("https_certificate_reload_failed", error=str(error))
            return
        self._version = version
        _log.info("https_certificate_reloaded", certificate=str(self._certificate))

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
            raise BadServerCertificate(f"TLS of {self._server} cannot be set up from {files}: {error}") from error
        return context

    def _file_versions(self) -> tuple[tuple[int, int], ...]:
        try:
            return tuple((status.st_mtime_ns, status.st_ino) for status in (each.stat() for each in self._files))
        except OSError as error:
            raise BadServerCertificate(f"cannot read {error.filename}: {error.strerror}") from error

    @property
    def _files(self) -> tuple[Path, ...]:
        return tuple(each for each in (self._certificate, self._key, self._client_ca) if each is not None)
