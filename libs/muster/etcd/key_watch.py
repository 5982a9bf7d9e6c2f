"""Tells when a key changes, so that nobody need ask all the time.

etcd3's own watcher spins without a pause while etcd is down and cannot be closed; this one ends with the first error,
and whoever watches looks for itself and watches anew.
"""

import asyncio
import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import grpc

from muster.etcd.connection import Connection
from muster.etcd.errors import EtcdUnavailable
from muster.etcd.etcd3_import import etcdrpc

_ERROR_PAUSE_SECONDS: Final = 0.2  # so that nobody who watches anew does so without a pause


class KeyWatch:
    """One watch of one key. `over` is set when the key changes after `revision`, or nothing more will be heard."""

    def __init__(self, connection: Connection, key: str, revision: int) -> None:
        """Start watching, from inside an event loop."""
        self.over = asyncio.Event()
        self._connection, self._key, self._revision = connection, key, revision
        self._loop = asyncio.get_running_loop()
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call: Any = None
        self._closed = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, name=f"etcd watch {key}", daemon=True).start()

    def close(self) -> None:
        """Stop watching."""
        with self._lock:
            self._closed.set()
            if self._call is not None:
                self._call.cancel()
        self._requests.put(None)

    def _listen(self) -> None:
        try:
            client = self._connection.client()
            with self._lock:
                if self._closed.is_set():
                    return
                stub = etcdrpc.WatchStub(client.channel)
                self._call = stub.Watch(self._ask(), credentials=client.call_credentials, metadata=client.metadata)
            for response in self._call:
                if response.events or response.canceled:
                    return
        except (EtcdUnavailable, grpc.RpcError, ValueError):  # ValueError: the channel is closed
            self._closed.wait(_ERROR_PAUSE_SECONDS)
        finally:
            self.close()
            self._tell()

    def _ask(self) -> Iterator[Any]:
        """One request, and no end before the watch is to end."""
        create = etcdrpc.WatchCreateRequest(key=self._key.encode(), start_revision=self._revision + 1)
        yield etcdrpc.WatchRequest(create_request=create)
        self._requests.get()

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nobody waits
            self._loop.call_soon_threadsafe(self.over.set)
