"""The expiry of a certificate is the one that openssl reports."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from builders.net.certificates import Authority
from muster.rpc.credentials import UnreadableCertificate, expiry


def by_openssl(certificate: Path) -> datetime:
    command = ("openssl", "x509", "-in", str(certificate), "-noout", "-enddate")
    expiry = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip().partition("=")[2]
    return datetime.strptime(expiry, "%b %d %H:%M:%S %Y %Z").replace(tzinfo=UTC)


@pytest.mark.parametrize("days", [-1, 1, 400, 36_500], ids=["past", "tomorrow", "next year", "after 2050"])
def test_expiry_is_the_one_that_openssl_reports(days: int, tmp_path: Path) -> None:
    certificate = Authority(tmp_path).issue("server", "muster-placement", days=days).certificate_file
    assert certificate is not None
    assert expiry(certificate.read_bytes()) == by_openssl(certificate)


def test_expiry_of_a_chain_is_the_earliest_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    long, short = (authority.issue(name, days=days).certificate_file for name, days in (("a", 90), ("b", 3)))
    assert long is not None and short is not None
    assert expiry(b"# a comment\n" + long.read_bytes() + short.read_bytes()) == by_openssl(short)
    assert by_openssl(short) < datetime.now(UTC) + timedelta(days=4)


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"something else",
        b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\n\xff\n-----END CERTIFICATE-----\n",
    ],
)
def test_text_that_is_not_a_certificate_is_rejected(pem: bytes) -> None:
    with pytest.raises(UnreadableCertificate, match="no end of validity"):
        expiry(pem)
