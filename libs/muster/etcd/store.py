"""Records in etcd: reads by prefix, and transactions that commit only while the writer is leader."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeVar

from msgspec import Struct

from muster.config.settings import PLAIN_TEXT, TlsSettings
from muster.etcd.client_pool import Password
from muster.etcd.connection import Answer, Connection
from muster.etcd.errors import BadEndpoints, EtcdUnavailable, Fenced, TooLarge
from muster.etcd.etcd3_import import etcdrpc
from muster.etcd.metrics import DURATION, ERRORS

__all__ = ["BadEndpoints", "EtcdUnavailable", "Fence", "Fenced", "Store", "TooLarge"]

_T = TypeVar("_T")

_LEASE_THREADS: Final = 2
_THREADS: Final = 4  # commits are few and batched; more threads would only queue for etcd's log
_PAGE_KEYS: Final = 256  # the record of a gang of 1,000 pods has about 100 KB


class Fence(Struct, frozen=True):
    """Proof of leadership: the leader key and its create revision."""

    key: str
    create_revision: int


class Store:
    """Access to etcd from one event loop; every call ends within `timeout_seconds`. Reconnects by itself."""

    def __init__(
        self,
        endpoints: str,
        timeout_seconds: float = 2.0,
        *,
        tls: TlsSettings = PLAIN_TEXT,
        user: str | None = None,
        password: Password | None = None,
    ) -> None:
        """`endpoints` is "HOST:PORT[,HOST:PORT...]". Connects lazily.

        Raises BadEndpoints, BadCertificates, and the errors of `password`.
        """
        self.connection = Connection(endpoints, timeout_seconds, tls, user, password)
        self._threads = ThreadPoolExecutor(_THREADS, "etcd")
        self._lease_threads = ThreadPoolExecutor(_LEASE_THREADS, "etcd-lease")

    async def get_prefix(self, prefix: str) -> list[tuple[str, bytes]]:
        """All keys with that prefix and their values, by key, at one revision. Raises EtcdUnavailable."""
        found: list[tuple[str, bytes]] = []
        start, end, revision = prefix.encode(), _after(prefix), 0
        while True:
            request = etcdrpc.RangeRequest(key=start, range_end=end, limit=_PAGE_KEYS, revision=revision)
            page = (await self._run("range", partial(_range, request))).value
            found.extend((record.key.decode(), record.value) for record in page.kvs)
            if not page.more:
                return found
            start = page.kvs[-1].key + b"\0"
            revision = revision or page.header.revision  # headers of later pages may have later revisions

    async def commit(self, fence: Fence, puts: Mapping[str, bytes], deletes: Collection[str] = ()) -> None:
        """Write and delete records in one transaction that commits only while the fence holds.

        Raises Fenced if there is another leader or none; TooLarge; EtcdUnavailable, whose `outcome_known` says that
        nothing was written. A commit can be repeated safely. A key may be put or deleted, not both.
        """
        if both := puts.keys() & set(deletes):
            raise ValueError(f"keys are both put and deleted in one transaction: {sorted(both)}")

        def transaction(client: Any) -> bool:
            make = client.transactions
            operations = [make.put(key, value) for key, value in puts.items()]
            operations += [make.delete(key) for key in deletes]
            succeeded, _ = client.transaction(
                compare=[make.create(fence.key) == fence.create_revision], success=operations, failure=[]
            )
            return bool(succeeded)

        answer = await self._run("commit", transaction)
        if answer.value:
            return
        if answer.repeated:
            raise EtcdUnavailable("etcd did not answer in time, and leadership is lost since", outcome_known=False)
        raise Fenced(f"the leader key {fence.key!r} no longer has create revision {fence.create_revision}")

    async def healthy(self, key: str = "\0") -> bool:
        """Whether etcd answers with a quorum. With authentication `key` must be readable by the user."""
        try:
            await self._run("health", partial(_range, etcdrpc.RangeRequest(key=key.encode(), count_only=True)))
        except EtcdUnavailable:
            return False
        return True

    async def ask(self, request: Callable[[Any], _T]) -> _T:
        """Call `request` with an etcd3 client; for the election, which must not queue behind commits.

        It must be idempotent. Raises EtcdUnavailable.
        """
        return (await self._run("election", request, self._lease_threads)).value

    async def close(self) -> None:
        """Wait for running calls, and close the connections."""
        for threads in (self._threads, self._lease_threads):
            await asyncio.get_running_loop().run_in_executor(None, threads.shutdown)
        self.connection.close()

    async def _run(
        self, operation: str, request: Callable[[Any], _T], threads: ThreadPoolExecutor | None = None
    ) -> Answer[_T]:
        loop = asyncio.get_running_loop()
        began = perf_counter()  # the loop's own clock is coarser
        try:
            answer = await loop.run_in_executor(threads or self._threads, self.connection.call, request)
        except (EtcdUnavailable, TooLarge):
            ERRORS.labels(operation).add()
            raise
        finally:
            DURATION.labels(operation).observe(perf_counter() - began)
        return answer


def _range(request: Any, client: Any) -> Any:
    """A Range request; etcd3's own get_prefix supports neither limit nor revision."""
    return client.kvstub.Range(request, client.timeout, credentials=client.call_credentials, metadata=client.metadata)


def _after(prefix: str) -> bytes:
    """The first key after all keys with the prefix."""
    raw = prefix.encode().rstrip(b"\xff")
    return raw[:-1] + bytes([raw[-1] + 1]) if raw else b"\0"
