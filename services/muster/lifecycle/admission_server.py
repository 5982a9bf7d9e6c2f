"""Serves a validating admission webhook: AdmissionReviews over HTTPS.

A review without a decision is answered with 503, so that the webhook's failurePolicy decides about the request.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web
from msgspec import Raw, Struct

from muster.config.settings import CannotStart
from muster.gangs.quoting import quoted
from muster.kube.json_repair import repaired
from muster.kube.objects import UNREADABLE, BadObject
from muster.rpc.https import ReloadedTls
from muster.telemetry.instruments import Histogram

READY_PATH: Final = "/ready"

_MAX_REVIEW_BYTES: Final = 4 * 1024 * 1024  # the API server takes objects of up to 3 MiB
_MAX_READ_BYTES: Final = 64 * 1024 * 1024  # of all reviews in progress: anyone who reaches the port can send them
_READ_SECONDS: Final = 10.0  # the API server waits no longer for an answer
_STOP_SECONDS: Final = 5.0  # for reviews in progress; longer than a decision takes
_API_VERSION: Final = "admission.k8s.io/v1"

_log = structlog.get_logger(__name__)


class CannotListenForReviews(CannotStart):
    """The webhook cannot listen on its address."""


class CannotDecide(Exception):
    """No decision is possible in time; the message says why."""


class Decision(Struct, frozen=True):
    """A decision about a request. An empty rejection allows it. `retryable`: the same request may be allowed soon."""

    rejection: str = ""
    retryable: bool = False


class Resource(Struct, frozen=True):
    """The resource of a request."""

    group: str = ""
    resource: str = ""


class AdmissionRequest(Struct, rename="camel", frozen=True):
    """The request of an AdmissionReview. `object` and `old_object` are JSON; null if there is none."""

    uid: str
    resource: Resource = Resource()
    sub_resource: str = ""
    operation: str = ""
    namespace: str = ""
    name: str = ""
    dry_run: bool = False
    object: Raw = Raw(b"null")
    old_object: Raw = Raw(b"null")


class _Review(Struct, rename="camel", frozen=True):
    api_version: str
    kind: str
    request: AdmissionRequest


Decide = Callable[[AdmissionRequest], Awaitable[Decision]]
"""Raises BadObject or what UNREADABLE has if the objects cannot be read, and CannotDecide."""


class AdmissionServer:
    """The HTTPS server of one webhook."""

    def __init__(
        self,
        name: str,
        address: str,
        path: str,
        tls: ReloadedTls,
        decide: Decide,
        *,
        is_ready: Callable[[], bool],
        seconds: Histogram,
    ) -> None:
        """`name` is that of the webhook in logs and errors; `seconds`, by HTTP status, are durations of reviews."""
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._name, self._path, self._tls = name, path, tls
        self._decide, self._is_ready, self._seconds = decide, is_ready, seconds
        self._runner: web.AppRunner | None = None
        self._read_bytes = 0
        self.port = 0
        """The listening port, once started."""

    async def start(self) -> None:
        """Starts listening. Raises CannotListenForReviews."""
        app = web.Application()
        app.router.add_post(self._path, self._answer)
        app.router.add_get(READY_PATH, self._ready)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_SECONDS)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls.context).start()
        except OSError as error:
            raise CannotListenForReviews(
                f"the {self._name} webhook cannot listen on {self._host}:{self._port}: {error}"
            ) from error
        self.port = self._runner.addresses[0][1]
        _log.info("webhook_started", webhook=self._name, port=self.port)

    async def stop(self) -> None:
        """Finishes reviews in progress, then closes."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _ready(self, _: web.Request) -> web.Response:
        ready = self._is_ready()
        return web.Response(status=200 if ready else 503, text="ok\n" if ready else "informers have not synced yet\n")

    async def _answer(self, request: web.Request) -> web.Response:
        began, status = perf_counter(), 500
        try:
            response = await self._review(request)
            status = response.status
        finally:
            self._seconds.labels(str(status)).observe(perf_counter() - began)
        return response

    async def _review(self, request: web.Request) -> web.Response:
        body = bytearray()
        try:
            refused = await self._read(request, body)
            return refused if refused is not None else await self._decide_about(body)
        finally:
            self._read_bytes -= len(body)

    async def _read(self, request: web.Request, body: bytearray) -> web.Response | None:
        """Read the body; returns a refusal if it is too long, too slow, or one of too many."""
        try:
            async with asyncio.timeout(_READ_SECONDS):
                async for part in request.content.iter_any():
                    body += part
                    self._read_bytes += len(part)
                    if len(body) > _MAX_REVIEW_BYTES:
                        return web.Response(status=413, text=f"a review has at most {_MAX_REVIEW_BYTES} bytes\n")
                    if self._read_bytes > _MAX_READ_BYTES:
                        return web.Response(status=503, text="too many reviews at once: try again\n")
        except TimeoutError:
            return web.Response(status=408, text=f"the review was not received within {_READ_SECONDS:g} s\n")
        return None

    async def _decide_about(self, body: bytearray) -> web.Response:
        try:
            review = _decoded(body)
            if (review.api_version, review.kind) != (_API_VERSION, "AdmissionReview"):
                raise BadObject(
                    f"{quoted(review.kind)} of {quoted(review.api_version)} is not an AdmissionReview of {_API_VERSION}"
                )
            return _reviewed(review.request, await self._decide(review.request))
        except (*UNREADABLE, BadObject) as error:
            return web.Response(status=400, text=f"not an AdmissionReview of {_API_VERSION}: {error}\n")
        except CannotDecide as failure:
            request = review.request
            subject = f"{request.namespace}/{request.name}"
            _log.warning("review_undecided", webhook=self._name, subject=subject, error=str(failure))
            return web.Response(status=503, text=f"{failure}\n")


def _decoded(body: bytearray) -> _Review:
    """The review; deep nesting in it must not exempt an object. Raises msgspec's and Unicode's errors."""
    try:
        return msgspec.json.decode(body, type=_Review)
    except UNREADABLE:
        return msgspec.json.decode(repaired(bytes(body)), type=_Review)


def _reviewed(request: AdmissionRequest, answer: Decision) -> web.Response:
    response: dict[str, Any] = {"uid": request.uid, "allowed": not answer.rejection}
    if answer.rejection:
        code, reason = (429, "TooManyRequests") if answer.retryable else (403, "Forbidden")
        response["status"] = {"code": code, "reason": reason, "message": answer.rejection}
    review = {"apiVersion": _API_VERSION, "kind": "AdmissionReview", "response": response}
    return web.Response(body=msgspec.json.encode(review), content_type="application/json")
