"""A coordinator with an etcd that requires client certificates and a user with permissions below the prefix."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from builders.net.certificates import Authority
from builders.wait import WAIT_SECONDS, eventually
from muster.config.settings import TlsSettings
from muster.coordinator.settings import NoPassword, read_password
from muster.etcd.users import UserSetup, set_up_users
from muster.localcluster.child_process import Child
from muster.localcluster.etcd import EtcdProcess
from muster.localcluster.ports import free_port
from muster.localcluster.probes import grpc_serving, wait_until_ready

PASSWORD = "correct horse"
PREFIX = "/muster/v1"


class SecureEtcd:
    """etcd with client certificates and users."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "authority")
        self.client = self.authority.issue("coordinator")
        self.process = EtcdProcess(directory / "etcd", durable=False, tls=self.authority.issue("etcd"))
        self.endpoint = self.process.endpoint

    async def let_be(self, password: str) -> None:
        """File with the user's password."""
        wanted = UserSetup("muster", password, "root's own", PREFIX)
        await asyncio.to_thread(set_up_users, self.endpoint, self.authority.issue("admin"), wanted, timeout_seconds=30)


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[SecureEtcd]:
    etcd = SecureEtcd(tmp_path)
    async with etcd.process:
        await etcd.let_be(PASSWORD)
        yield etcd


def coordinator(etcd: SecureEtcd, directory: Path, tls: TlsSettings, password: str) -> tuple[Child, str]:
    (directory / "password").write_text(password + "\n")
    address, nobody = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    child = Child(
        "coordinator",
        [
            *(sys.executable, "-m", "muster.cli", "run", "coordinator", "--listen", address),
            *("--etcd", etcd.endpoint, "--etcd-prefix", PREFIX),
            *("--cluster-state", nobody, "--placement", nobody, "--binding", nobody),
            *("--etcd-tls-certificate-file", str(tls.certificate_file), "--etcd-tls-key-file", str(tls.key_file)),
            *("--etcd-tls-ca-file", str(tls.ca_file)),
            *("--etcd-user", "muster", "--etcd-password-file", str(directory / "password")),
        ],
        directory / "coordinator.log",
    )
    return child, address


async def test_a_coordinator_leads_with_certificate_and_prefix_permissions(etcd: SecureEtcd, tmp_path: Path) -> None:
    child, address = coordinator(etcd, tmp_path, etcd.client, PASSWORD)
    await child.start()
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await wait_until_ready(child, grpc_serving(address))
        await eventually(lambda: '"term_started"' in child.log.read_text())
        assert PASSWORD not in child.log.read_text()
        assert PASSWORD not in " ".join(psutil.Process(child.pid).cmdline())
    finally:
        await child.kill()


async def test_a_wrong_password_is_reported_and_the_corrected_file_is_used(etcd: SecureEtcd, tmp_path: Path) -> None:
    child, address = coordinator(etcd, tmp_path, etcd.client, "wrong")
    await child.start()
    try:
        await eventually(lambda: "authentication failed" in child.log.read_text())
        assert not await grpc_serving(address)()
        (tmp_path / "password").write_text(PASSWORD + "\n")
        async with asyncio.timeout(WAIT_SECONDS):
            await wait_until_ready(child, grpc_serving(address))
    finally:
        await child.kill()


def test_a_missing_password_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoPassword, match="nowhere"):
        read_password(tmp_path / "nowhere")
