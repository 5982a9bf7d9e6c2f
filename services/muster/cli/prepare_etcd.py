"""`muster prepare-etcd`: creates the coordinators' etcd user and enables authentication. Idempotent."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from muster.cli.errors import CliError
from muster.config.settings import CannotStart, TlsSettings
from muster.etcd.users import UserSetup, set_up_users
from muster.telemetry.logs import configure_logs


@dataclass(frozen=True)
class Etcd:
    """Client endpoints, and the files for mutual TLS."""

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
    setup = UserSetup(user, _password(password_file), _password(root_password_file), prefix.rstrip("/"))
    try:
        set_up_users(etcd.endpoints, etcd.tls(), setup, timeout_seconds=wait)
    except CannotStart as error:
        raise CliError(str(error)) from error


def _password(file: Path) -> str:
    try:
        password = file.read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read the password file {str(file)!r}: {error}", usage=True) from error
    if not password:
        raise CliError(f"the password file {str(file)!r} is empty", usage=True)
    return password
