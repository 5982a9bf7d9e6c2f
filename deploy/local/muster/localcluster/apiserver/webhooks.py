"""Client of validating admission webhooks."""

import asyncio
import ssl
import uuid
from typing import Any, Final

import aiohttp
import msgspec
import structlog

from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.status import StatusError
from muster.localcluster.apiserver.store import Object
from muster.localcluster.apiserver.webhook_configurations import Request, Webhook, matching_webhooks

_MAX_RESPONSE_BYTES: Final = 3 * 1024 * 1024

_log: Final = structlog.get_logger(__name__)


class CallFailed(Exception):
    """A webhook gave no usable response."""


class Webhooks:
    """Calls the webhooks of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._http: aiohttp.ClientSession | None = None
        self._trust: dict[bytes, ssl.SSLContext] = {}

    async def close(self) -> None:
        """Cancel calls in flight."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def call_all(self, request: Request) -> list[str]:
        """Call all matching webhooks concurrently; returns their warnings.

        Raises StatusError if one denies the request, or fails with failurePolicy Fail.
        """
        webhooks = matching_webhooks(self._cluster, request)
        answers = await asyncio.gather(*(self._decision_of(each, request) for each in webhooks), return_exceptions=True)
        warnings: list[str] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            warnings += answer
        return warnings

    async def _decision_of(self, webhook: Webhook, request: Request) -> list[str]:
        try:
            response = await self._call(webhook, request)
        except CallFailed as failure:
            if webhook.ignores_failures:
                _log.warning("webhook_failure_ignored", webhook=webhook.name, error=str(failure))
                return []
            message = f'failed calling webhook "{webhook.name}": failed to call webhook: {failure}'
            raise StatusError(500, f"Internal error occurred: {message}") from failure
        if not response.get("allowed"):
            raise _denial(webhook.name, response.get("status") or {})
        return [str(warning) for warning in response.get("warnings") or ()]

    async def _call(self, webhook: Webhook, request: Request) -> Object:
        """Response of the webhook's AdmissionReview. Raises CallFailed."""
        if not webhook.url:
            raise CallFailed(f"Service {webhook.service} has no address in the local cluster: give a url")
        url = f"{webhook.url}{'&' if '?' in webhook.url else '?'}timeout={webhook.timeout_seconds}s"
        uid = str(uuid.uuid4())
        review = {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": _request_body(request, uid),
        }
        try:
            async with self._session().post(
                url,
                data=msgspec.json.encode(review),
                headers={"Content-Type": "application/json", "Accept": "application/json"},
                ssl=self._trusting(webhook),
                timeout=aiohttp.ClientTimeout(total=webhook.timeout_seconds),
                allow_redirects=False,
            ) as answer:
                status, body = answer.status, await answer.content.read(_MAX_RESPONSE_BYTES)
                while not answer.content.at_eof() and len(body) < _MAX_RESPONSE_BYTES:
                    body += await answer.content.read(_MAX_RESPONSE_BYTES)
        except TimeoutError as error:
            raise CallFailed(f'Post "{url}": context deadline exceeded') from error
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            raise CallFailed(f'Post "{url}": {_error_text(error)}') from error
        if status != 200:
            raise CallFailed(f"the server responded with the status code {status}: {body[:300]!r}")
        return _response(body, uid)

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        return self._http

    def _trusting(self, webhook: Webhook) -> ssl.SSLContext:
        """Raises CallFailed."""
        context = self._trust.get(webhook.ca_bundle)
        if context is None:
            try:
                authorities = webhook.ca_bundle.decode("ascii") if webhook.ca_bundle else None
                context = ssl.create_default_context(cadata=authorities)
            except (ssl.SSLError, ValueError) as error:
                raise CallFailed(f"unable to load root certificates: {error}") from error
            self._trust[webhook.ca_bundle] = context
        return context


def _error_text(error: Exception) -> str:
    """Text of an error, without details of aiohttp."""
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        message_text = (error.os_error.strerror or str(error.os_error)).lower()
        return f"dial tcp {error.host}:{error.port}: connect: {message_text}"
    return str(error)


def _request_body(request: Request, uid: str) -> Object:
    kind = request.kind
    group_version = {"group": kind.group, "version": kind.version}
    of_kind, of_resource = {**group_version, "kind": kind.name}, {**group_version, "resource": kind.plural}
    body: Object = {"uid": uid, "kind": of_kind, "resource": of_resource}
    body |= {"requestKind": of_kind, "requestResource": of_resource, "name": request.name}
    if request.subresource:
        body |= {"subResource": request.subresource, "requestSubResource": request.subresource}
    if request.namespace is not None:
        body["namespace"] = request.namespace
    body |= {"operation": request.operation, "userInfo": request.user.as_object()}
    body |= {"object": request.object, "oldObject": request.old}
    return body | {"dryRun": request.dry_run, "options": request.options}


def _response(body: bytes, uid: str) -> Object:
    """Raises CallFailed."""
    try:
        review: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CallFailed(f"the response is not JSON: {error}") from error
    response = review.get("response") if isinstance(review, dict) else None
    if not isinstance(response, dict):
        raise CallFailed("webhook response is missing: the body is not an AdmissionReview with a response")
    if (review.get("kind"), review.get("apiVersion")) != ("AdmissionReview", "admission.k8s.io/v1"):
        raise CallFailed("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview")
    if response.get("uid") != uid:
        raise CallFailed(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    return response


def _denial(webhook: str, status: Object) -> StatusError:
    denied = f'admission webhook "{webhook}" denied the request'
    message, reason = status.get("message") or "", status.get("reason") or ""
    message_text = f"{denied}: {message or reason}" if message or reason else f"{denied} without explanation"
    code = max(int(status.get("code") or 0), 400)
    return StatusError(code, message_text, reason=reason or None, details=status.get("details"))
