"""Certificates for tests, issued with openssl."""

import subprocess
from pathlib import Path

from muster.config.settings import TlsSettings


class Authority:
    """A CA that issues certificates for localhost; all its files are in one directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key, self.certificate = directory / "ca.key", directory / "ca.crt"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"),
            *("-keyout", str(self._key), "-out", str(self.certificate), "-subj", f"/CN=authority {directory.name}"),
        )

    def issue(self, name: str, *dns: str, days: int = 1) -> TlsSettings:
        """TLS files of `name`, which replace earlier ones and trust this CA.

        The certificate is for localhost and the names in `dns`; with `days` below 0 it has expired.
        """
        key, request, certificate = (self._directory / f"{name}.{ending}" for ending in ("key", "csr", "crt"))
        extensions = self._directory / "extensions"
        names = "".join(f",DNS:{each}" for each in dns)
        extensions.write_text(f"subjectAltName=DNS:localhost,IP:127.0.0.1{names}\n")
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", str(key), "-out", str(request), "-subj", f"/CN={name}"),
        )
        _openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self._key)),
            *("-CAcreateserial", "-days", str(days), "-extfile", str(extensions), "-out", str(certificate)),
        )
        return TlsSettings(certificate_file=certificate, key_file=key, ca_file=self.certificate)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
