"""Watch of one key, instead of polling.

etcd3's own watcher spins while etcd is down and cannot be closed; this one ends with the first change or error, and the
caller reads the key and watches again.
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

_ERROR_PAUSE_SECONDS: Final = 0.2  # so that callers do not reopen failing watches in a loop


class KeyWatch:
    """One watch of one key. `ended` is set when the key changes after `revision`, or when the watch breaks."""

    def __init__(self, connection: Connection, key: str, revision: int) -> None:
        """Start watching; call within an event loop."""
        self.ended = asyncio.Event()
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
                self._call = stub.Watch(
                    self._watch_requests(), credentials=client.call_credentials, metadata=client.metadata
                )
            for response in self._call:
                if response.events or response.canceled:
                    return
        except (EtcdUnavailable, grpc.RpcError, ValueError):  # ValueError: the channel is closed
            self._closed.wait(_ERROR_PAUSE_SECONDS)
        finally:
            self.close()
            self._notify()

    def _watch_requests(self) -> Iterator[Any]:
        """The create request; the stream of requests ends when the watch is closed."""
        create = etcdrpc.WatchCreateRequest(key=self._key.encode(), start_revision=self._revision + 1)
        yield etcdrpc.WatchRequest(create_request=create)
        self._requests.get()

    def _notify(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.ended.set)
