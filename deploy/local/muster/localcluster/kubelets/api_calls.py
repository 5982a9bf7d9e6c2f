"""API calls of kubelets: bounded concurrency, retried until answered."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from muster.kube.session import ApiStatusError, KubeSession, KubeUnreachable, Method, Response
from muster.retry.retrying import retry_forever

STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"

_MAX_CONCURRENT: Final = 32
_CALL_SECONDS: Final = 15.0
_PAUSE_SECONDS: Final = (0.1, 5.0)
_FINAL_STATUSES: Final = (404, 409, 422)
"""Final answers: the object was deleted or replaced."""

_log: Final = structlog.get_logger(__name__)


class Calls:
    """Queue of API calls."""

    def __init__(self, session: KubeSession) -> None:
        self._session = session
        self._waiting: asyncio.Queue[tuple[Method, str, bytes, str, Callable[[], None] | None]] = asyncio.Queue()

    def add(
        self, method: Method, path: str, body: bytes, content_type: str, done: Callable[[], None] | None = None
    ) -> None:
        """Queue a call; `done` is called after it succeeded."""
        self._waiting.put_nowait((method, path, body, content_type, done))

    async def run(self) -> None:
        """Process items until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_MAX_CONCURRENT):
                group.create_task(self._work())

    async def make(self, method: Method, path: str, body: bytes, content_type: str) -> Response:
        """Make a call now, and retry it until the answer is neither 429 nor 5xx."""

        async def once() -> Response:
            answer = await self._session.request(
                method, path, body=body, content_type=content_type, timeout_seconds=_CALL_SECONDS
            )
            if answer.status == 429 or answer.status >= 500:
                raise ApiStatusError.from_response(answer)
            return answer

        def note(attempt: int, error: BaseException, pause_seconds: float) -> None:
            log = _log.warning if attempt == 1 else _log.debug
            log("api_call_retried", path=path, error=str(error), attempt=attempt)

        try:
            return await once()  # fast path without the retry helper
        except (KubeUnreachable, ApiStatusError) as error:
            note(1, error, 0.0)
        return await retry_forever(once, on=(KubeUnreachable, ApiStatusError), bounds=_PAUSE_SECONDS, before_wait=note)

    async def _work(self) -> None:
        while True:
            method, path, body, content_type, done = await self._waiting.get()
            answer = await self.make(method, path, body, content_type)
            if answer.status < 300:
                if done is not None:
                    done()
            elif answer.status not in _FINAL_STATUSES:
                _log.error("api_call_rejected", path=path, status=answer.status, answer=answer.body[:512].decode())
