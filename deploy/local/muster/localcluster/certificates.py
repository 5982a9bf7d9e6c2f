"""Certificate authority for the processes of one machine, by openssl."""

import asyncio
import shutil
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from muster.config.settings import TlsSettings

_DAYS: Final = "3650"
_ELLIPTIC: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class NoCertificate(RuntimeError):
    """openssl failed; the message has its output."""


def can_issue_certificates() -> bool:
    """Whether openssl is installed."""
    return shutil.which("openssl") is not None


class Authority:
    """Authority for certificates of loopback addresses. All files are in one directory that only its owner may read."""

    def __init__(self, directory: Path, name: str = "muster local") -> None:
        self._directory, self._name = directory, name
        self.certificate, self._key = directory / "ca.crt", directory / "ca.key"

    def files(self, name: str) -> TlsSettings:
        """Files of `name`, which may not be issued yet."""
        return TlsSettings(
            certificate_file=self._directory / f"{name}.crt",
            key_file=self._directory / f"{name}.key",
            ca_file=self.certificate,
        )

    async def create(self) -> None:
        """Create the authority's own key and certificate, unless they exist. Raises NoCertificate."""
        if self.certificate.exists():
            return
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = self._directory / "ca.crt.partial"
        files = ("-keyout", str(self._key), "-out", str(partial))
        await _openssl("req", "-x509", *_ELLIPTIC, "-days", _DAYS, *files, "-subj", f"/CN={self._name}")
        partial.replace(self.certificate)

    async def issue(self, name: str, *names: str) -> None:
        """Issue a new key and certificate for `name`, valid for DNS names and addresses; replaces previous ones. Raises
        NoCertificate.
        """
        certificate, key = (self._directory / f"{name}.{ending}" for ending in ("crt", "key"))
        request, extensions = (self._directory / f"{name}.{ending}" for ending in ("csr", "extensions"))
        new_certificate, new_key = (self._directory / f"{name}.new-{ending}" for ending in ("crt", "key"))
        alternatives = "".join(f",{'IP' if _is_address(each) else 'DNS'}:{each}" for each in names)
        extensions.write_text(f"subjectAltName=DNS:localhost,IP:127.0.0.1{alternatives}\nbasicConstraints=CA:FALSE\n")
        await _openssl("req", *_ELLIPTIC, "-keyout", str(new_key), "-out", str(request), "-subj", f"/CN={name}")
        signed_by = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial")
        files = ("-in", str(request), "-extfile", str(extensions), "-out", str(new_certificate))
        await _openssl("x509", "-req", *signed_by, "-days", _DAYS, *files)
        new_key.replace(key)
        new_certificate.replace(certificate)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


async def _openssl(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        "openssl", *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    if process.returncode != 0:
        raise NoCertificate(f"openssl {arguments[0]} failed: {errors.decode(errors='replace').strip()[-500:]}")
