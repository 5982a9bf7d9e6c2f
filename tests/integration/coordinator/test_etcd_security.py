"""A coordinator and an etcd that demands certificates, and knows a user with rights below the prefix only."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from builders.certificates import Authority
from muster.config.settings import TlsSettings
from muster.coordinator.settings import NoPassword, read_password
from muster.localcluster.child import Child
from muster.localcluster.etcd import program
from muster.localcluster.ports import free_port
from muster.localcluster.probes import grpc_serving, wait_until_ready

PASSWORD = "correct horse"
PREFIX = "/muster/v1"


class SecureEtcd:
    """etcd with client certificates and users."""

    def __init__(self, directory: Path) -> None:
        self.endpoint = f"127.0.0.1:{free_port()}"
        authority = Authority(directory / "authority")
        self.client = authority.issue("coordinator")
        server = authority.issue("etcd")
        peer = f"http://127.0.0.1:{free_port()}"
        self.child = Child(
            "etcd",
            [
                *(program("etcd"), "--name", "s", "--data-dir", str(directory / "etcd"), "--unsafe-no-fsync"),
                *("--listen-client-urls", f"https://{self.endpoint}"),
                *("--advertise-client-urls", f"https://{self.endpoint}", "--client-cert-auth"),
                *("--cert-file", str(server.certificate_file), "--key-file", str(server.key_file)),
                *("--trusted-ca-file", str(server.ca_file)),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"s={peer}"),
            ],
            directory / "etcd.log",
        )

    async def control(self, *arguments: str) -> bool:
        """Run etcdctl as root; whether it worked."""
        tls = self.client
        process = await asyncio.create_subprocess_exec(
            *(program("etcdctl"), "--endpoints", f"https://{self.endpoint}", "--user", "root:root"),
            *("--cert", str(tls.certificate_file), "--key", str(tls.key_file), "--cacert", str(tls.ca_file)),
            *arguments,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return await process.wait() == 0

    async def healthy(self) -> bool:
        return await self.control("get", "x")


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[SecureEtcd]:
    etcd = SecureEtcd(tmp_path)
    await etcd.child.start()
    try:
        async with asyncio.timeout(30):
            await wait_until_ready(etcd.child, etcd.healthy)
        for arguments in (
            ("user", "add", "root:root"),
            ("user", "grant-role", "root", "root"),
            ("role", "add", "muster"),
            ("role", "grant-permission", "muster", "readwrite", PREFIX + "/", "--prefix"),
            ("user", "add", f"muster:{PASSWORD}"),
            ("user", "grant-role", "muster", "muster"),
            ("auth", "enable"),
        ):
            assert await etcd.control(*arguments), arguments
        yield etcd
    finally:
        await etcd.child.kill()


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


async def test_it_leads_with_a_certificate_and_rights_below_its_prefix(etcd: SecureEtcd, tmp_path: Path) -> None:
    child, address = coordinator(etcd, tmp_path, etcd.client, PASSWORD)
    await child.start()
    try:
        async with asyncio.timeout(30):
            await wait_until_ready(child, grpc_serving(address))
            while '"term begins"' not in child.log.read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert PASSWORD not in child.log.read_text()
        assert PASSWORD not in " ".join(psutil.Process(child.pid).cmdline())
    finally:
        await child.kill()


async def test_with_a_wrong_password_it_is_not_ready_and_says_why(etcd: SecureEtcd, tmp_path: Path) -> None:
    child, address = coordinator(etcd, tmp_path, etcd.client, "wrong")
    await child.start()
    try:
        async with asyncio.timeout(30):
            while "authentication failed" not in child.log.read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert not await grpc_serving(address)()
    finally:
        await child.kill()


def test_a_password_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoPassword, match="nowhere"):
        read_password(tmp_path / "nowhere")
