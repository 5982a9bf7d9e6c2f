"""Mutual TLS from files that may be replaced at any time, so that certificates can be rotated without a restart.

Replacing three files one after the other exposes sets that do not match. So new files are used only when they have been
read completely, match, and did not change meanwhile; until then the old ones stay in use.
"""

import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import grpc
import structlog

from muster.config.settings import CannotStart, TlsSettings
from muster.telemetry.metrics import sampled

_log = structlog.get_logger()

_LOOK_AGAIN_SECONDS: Final = 1.0
"""Files that did not match are read again after this time, even if they look unchanged."""

_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_END: Final = b"-----END CERTIFICATE-----"
_VERSION, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18
_FORMS: Final = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
_VALIDITY: Final = 3  # after serial number, algorithm and issuer

_EXPIRY: Final = sampled(
    "muster_certificate_expiration_timestamp_seconds",
    "Unix time at which the certificate of this process expires, by file. New connections fail from then on.",
    ("file",),
)
_told: Final[dict[tuple[str, ...], float]] = {}
_EXPIRY.read_from(lambda: _told)

_Stamp = tuple[tuple[int, int, int], ...]


class BadCertificates(CannotStart):
    """Certificate, key and CA cannot be read, or do not match; the message names the files."""


@dataclass(frozen=True)
class Pem:
    """Contents of the files; must never be logged."""

    certificate: bytes
    key: bytes
    authority: bytes

    def __repr__(self) -> str:
        return "Pem(...)"


class Certificates:
    """Certificate, key and CA of this process, from files."""

    def __init__(self, files: tuple[Path, Path, Path]) -> None:
        """`files` are certificate, key and CA. Raises BadCertificates."""
        self.files = files
        self._stamp = _stamp(files)
        self.pem = _read(files)
        expose_expiry(str(files[0]), self.pem.certificate)
        self._failed: tuple[_Stamp, float] | None = None

    def renewed(self) -> bool:
        """Read the files again if they changed; returns whether `pem` is new. Cheap and thread-safe."""
        try:
            stamp = _stamp(self.files)
            if stamp == self._stamp or self._failed_before(stamp):
                return False
            self._failed = stamp, time.monotonic()
            pem = _read(self.files)
            if _stamp(self.files) != stamp:
                return False
        except BadCertificates as error:
            _log.warning("certificate_reload_failed", error=str(error))
            return False
        self._stamp, self._failed = stamp, None
        if pem == self.pem:
            return False
        self.pem = pem
        until = expose_expiry(str(self.files[0]), pem.certificate)
        _log.info("certificate_reloaded", certificate=str(self.files[0]), expires=until.isoformat())
        return True

    def _failed_before(self, stamp: _Stamp) -> bool:
        """The same files failed a moment ago."""
        if self._failed is None:
            return False
        failed, when = self._failed
        return failed == stamp and time.monotonic() - when < _LOOK_AGAIN_SECONDS


def server_credentials(tls: TlsSettings) -> grpc.ServerCredentials | None:
    """Credentials that demand a certificate of every client; None for plain text. Raises BadCertificates."""
    if tls.files is None:
        return None
    certificates = Certificates(tls.files)

    def changed() -> grpc.ServerCertificateConfiguration | None:
        return _configuration(certificates.pem) if certificates.renewed() else None

    fetch: Any = changed  # returns None if nothing changed, which the type stubs do not allow
    return grpc.dynamic_ssl_server_credentials(
        _configuration(certificates.pem), fetch, require_client_authentication=True
    )


def channel_credentials(pem: Pem) -> grpc.ChannelCredentials:
    """Credentials of a client."""
    return grpc.ssl_channel_credentials(pem.authority, pem.key, pem.certificate)


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.authority)


def _stamp(files: tuple[Path, ...]) -> _Stamp:
    try:
        return tuple((status.st_mtime_ns, status.st_ino, status.st_size) for status in (file.stat() for file in files))
    except OSError as error:
        raise BadCertificates(f"cannot read {error.filename}: {error.strerror}") from error


def _read(files: tuple[Path, Path, Path]) -> Pem:
    """Contents of the files, which match. Raises BadCertificates."""
    certificate, key, authority = (_bytes(file) for file in files)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(files[2])
    except ssl.SSLError as error:
        raise BadCertificates(f"{files[2]} contains no CA certificates (PEM): {error}") from error
    try:
        context.load_cert_chain(files[0], files[1], password="")
        expiry(certificate)
    except (ssl.SSLError, OSError, UnreadableCertificate) as error:
        raise BadCertificates(f"{files[0]} is not a certificate (PEM) for the key {files[1]}: {error}") from error
    return Pem(certificate, key, authority)


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise BadCertificates(f"cannot read {file}: {error.strerror}") from error


# -- expiry, read from the certificates themselves


class UnreadableCertificate(ValueError):
    """The certificate is not valid X.509."""


def expose_expiry(file: str, pem: bytes) -> datetime:
    """Expose the end of validity as a metric and return it. Raises UnreadableCertificate."""
    until = expiry(pem)
    _told[(file,)] = until.timestamp()
    return until


def expiry(pem: bytes) -> datetime:
    """The earliest end of any certificate of a chain. Raises UnreadableCertificate."""
    try:
        return min(_not_after(ssl.PEM_cert_to_DER_cert(each)) for each in _certificates(pem))
    except (ValueError, IndexError) as error:
        raise UnreadableCertificate(f"no end of validity found in the certificate: {error}") from error


def _certificates(pem: bytes) -> Iterator[str]:
    for part in pem.split(_BEGIN)[1:]:
        yield (_BEGIN + part.partition(_END)[0] + _END).decode("ascii")


def _not_after(der: bytes) -> datetime:
    [(_, certificate)] = _elements(der)
    [(_, signed), *_] = _elements(certificate)
    fields = [content for tag, content in _elements(signed) if tag != _VERSION]
    _, (tag, until) = _elements(fields[_VALIDITY])
    return datetime.strptime(until.decode("ascii"), _FORMS.get(tag, "")).replace(tzinfo=UTC)


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tags and contents of consecutive DER elements."""
    at = 0
    while at < len(der):
        tag, length = der[at], der[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(der[at : at + size], "big")
            at += size
        yield tag, der[at : at + length]
        at += length
