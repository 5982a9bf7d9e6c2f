"""Mutual TLS from files. A server reads them anew when they change, so that certificates can be rotated under it."""

from pathlib import Path
from typing import Any

import grpc

from muster.config.settings import CannotStart, TlsSettings


class BadCertificates(CannotStart):
    """A certificate, key or CA file cannot be read; the message names it."""


def server_credentials(tls: TlsSettings) -> grpc.ServerCredentials | None:
    """Credentials that demand a certificate of every client; None for plain text. Raises BadCertificates."""
    if tls.files is None:
        return None
    files = tls.files
    stamp = _stamp(files)

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal stamp
        try:
            now = _stamp(files)
            if now == stamp:
                return None
            configuration = _configuration(files)
        except BadCertificates:  # in the middle of being replaced: the old ones serve on
            return None
        stamp = now
        return configuration

    fetch: Any = changed  # None says that nothing changed, which the types do not know
    return grpc.dynamic_ssl_server_credentials(_configuration(files), fetch, require_client_authentication=True)


def channel_credentials(tls: TlsSettings) -> grpc.ChannelCredentials | None:
    """Credentials of a client, as the files are now; None for plain text. Raises BadCertificates."""
    if tls.files is None:
        return None
    certificate, key, authority = (_read(file) for file in tls.files)
    return grpc.ssl_channel_credentials(authority, key, certificate)


def _configuration(files: tuple[Path, Path, Path]) -> grpc.ServerCertificateConfiguration:
    certificate, key, authority = (_read(file) for file in files)
    return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)


def _stamp(files: tuple[Path, ...]) -> tuple[tuple[int, int], ...]:
    try:
        return tuple((status.st_mtime_ns, status.st_ino) for status in (file.stat() for file in files))
    except OSError as error:
        raise BadCertificates(f"cannot read {error.filename}: {error.strerror}") from error


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise BadCertificates(f"cannot read {file}: {error.strerror}") from error
