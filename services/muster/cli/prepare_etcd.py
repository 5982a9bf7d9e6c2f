"""`muster prepare-etcd`: what an etcd needs before a coordinator can use it, once and again without harm."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from muster.cli.errors import CliError
from muster.config.settings import CannotStart, TlsSettings
from muster.etcd.users import Wanted, prepare
from muster.telemetry.logs import configure_logs


@dataclass(frozen=True)
class Etcd:
    """Where it is, and as what it knows us."""

    endpoints: str
    certificate_file: Path | None
    key_file: Path | None
    ca_file: Path | None

    def tls(self) -> TlsSettings:
        """Raises CliError."""
        try:
            return TlsSettings(certificate_file=self.certificate_file, key_file=self.key_file, ca_file=self.ca_file)
        except ValidationError as error:
            raise CliError(f"--tls-*: {error.errors()[0]['msg'].removeprefix('Value error, ')}", usage=True) from None


def prepare_etcd(
    etcd: Etcd, user: str, password_file: Path, root_password_file: Path, prefix: str, wait: float
) -> None:
    """Raises CliError."""
    configure_logs("prepare-etcd", "info", "json")
    wanted = Wanted(user, _password(password_file), _password(root_password_file), prefix.rstrip("/"))
    try:
        prepare(etcd.endpoints, etcd.tls(), wanted, timeout_seconds=wait)
    except CannotStart as error:
        raise CliError(str(error)) from error


def _password(file: Path) -> str:
    try:
        password = file.read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"no password can be read from {str(file)!r}: {error}", usage=True) from error
    if not password:
        raise CliError(f"the file {str(file)!r} is empty where a password should be", usage=True)
    return password
