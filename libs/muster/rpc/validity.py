"""Until when certificates hold, read from the certificates themselves: the one thing that is wanted of X.509 here."""

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from muster.telemetry.metrics import sampled

_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_END: Final = b"-----END CERTIFICATE-----"
_VERSION, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18
_FORMS: Final = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
_VALIDITY: Final = 3  # after serial number, algorithm and issuer

_EXPIRY: Final = sampled(
    "muster_certificate_expiration_timestamp_seconds",
    "Until when the certificate that this process shows holds, as Unix time, by its file. New connections fail then.",
    ("file",),
)
_told: Final[dict[tuple[str, ...], float]] = {}
_EXPIRY.read_from(lambda: _told)


class UnreadableCertificate(ValueError):
    """It is not in the form that X.509 prescribes."""


def tell_expiry(file: str, pem: bytes) -> datetime:
    """Say in the metrics until when it holds, and return that. Raises UnreadableCertificate."""
    until = expiry(pem)
    _told[(file,)] = until.timestamp()
    return until


def expiry(pem: bytes) -> datetime:
    """The earliest end of any certificate of a chain. Raises UnreadableCertificate."""
    try:
        return min(_not_after(ssl.PEM_cert_to_DER_cert(each)) for each in _certificates(pem))
    except (ValueError, IndexError) as error:
        raise UnreadableCertificate(f"no end of validity is found in the certificate: {error}") from error


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
    """Tags and contents of what stands one after the other."""
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
