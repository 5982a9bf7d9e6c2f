"""HTTP server of the embedded API server."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import structlog
from aiohttp import web

from muster.localcluster.apiserver import openapi
from muster.localcluster.apiserver.access.access import Access
from muster.localcluster.apiserver.access.audit import PATH as ACCESS_PATH
from muster.localcluster.apiserver.access.users import User
from muster.localcluster.apiserver.admission import Admission
from muster.localcluster.apiserver.api import Answer, Api
from muster.localcluster.apiserver.bootstrap import bootstrap
from muster.localcluster.apiserver.builtin_kinds import builtin_kinds
from muster.localcluster.apiserver.cluster import Cluster, Timing
from muster.localcluster.apiserver.controllers import Controllers
from muster.localcluster.apiserver.discovery import discover
from muster.localcluster.apiserver.faults import PATH as FAULTS_PATH
from muster.localcluster.apiserver.faults import Fault, Faults, ServerFaults
from muster.localcluster.apiserver.kinds import Kinds
from muster.localcluster.apiserver.kubeconfigs import write_kubeconfig
from muster.localcluster.apiserver.routing import Call, NoSuchPath, find_target, split_target
from muster.localcluster.apiserver.status import StatusError, no_such_resource
from muster.localcluster.apiserver.watch import Watch

_MAX_BODY_BYTES: Final = 3 * 1024 * 1024
_JSON: Final = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
_TEXT: Final = {"Content-Type": "text/plain; charset=utf-8"}
_HEALTH_PATHS: Final = ("/healthz", "/readyz", "/livez", "/ping")
_STOP_SECONDS: Final = 1.0

_log: Final = structlog.get_logger(__name__)


class ApiServer:
    """Kubernetes API server in this process, with all state in memory.

    `history`: number of changes per resource that a watch can resume from. `allow_faults`: serve /muster-faults.
    `tokens`: users by token, besides the administrator's.
    """

    def __init__(
        self,
        listen: str = "127.0.0.1:0",
        *,
        allow_faults: bool = False,
        history: int = 16_384,
        timing: Timing | None = None,
        tokens: Mapping[str, User] | None = None,
    ) -> None:
        self._host, _, port = listen.rpartition(":")
        self._port = int(port)
        self._cluster = Cluster(Kinds(builtin_kinds()), history=history, timing=timing or Timing())
        self.access = Access(self._cluster, tokens or {})
        self._api = Api(self._cluster)
        self._admission = Admission(self._cluster, self._api.writer, self._api.deleter)
        self._controllers = Controllers(self._cluster, self._api.writer, self._api.deleter, self._admission)
        self._faults = Faults(self._server_faults()) if allow_faults else None
        self._runner: web.ServerRunner | None = None
        self.url = ""
        """URL, after the start."""

    async def start(self) -> str:
        """Listen; returns the URL."""
        bootstrap(self._cluster)
        self._controllers.start()
        server = web.Server(
            self._handle,
            request_factory=_request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=3600.0,
            logger=logging.getLogger(__name__),
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=_STOP_SECONDS)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, backlog=1024)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self.url

    async def stop(self) -> None:
        """Close all watches and the listening socket."""
        self._api.watches.cut()
        await self._controllers.stop()
        await self._admission.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def write_kubeconfig(self, path: Path) -> None:
        """Write the administrator's kubeconfig."""
        write_kubeconfig(path, self.url, self.access.authenticator.administrator_token)

    def _server_faults(self) -> ServerFaults:
        def compact() -> None:
            self._cluster.store.compact()
            self._api.reader.forget_pages()

        watches = self._api.watches
        return ServerFaults(watches.cut, compact, watches.send_bookmarks, lambda: len(watches))

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path, query = split_target(request.raw_path)
        fault = None
        if self._faults is not None:
            if path.startswith(FAULTS_PATH):
                self.access.admit(request.headers, request.method, path, query)
                return await self._serve_faults(request, path)
            fault = self._faults.take(request.method, path)
        try:
            if fault is not None and not fault.after:
                await self._inject(fault, request)
            response = await self._respond(request, path, query)
            if fault is not None and fault.after:
                await self._inject(fault, request)
            return response
        except StatusError as error:
            return _failure(error)
        except NoSuchPath:
            return web.Response(status=404, text="404 page not found\n")
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:
            _log.exception("request_failed", method=request.method, path=path)
            return _failure(StatusError(500, f"Internal error occurred: {error}"))

    async def _respond(self, request: web.BaseRequest, path: str, query: dict[str, str]) -> web.StreamResponse:
        user = self.access.admit(request.headers, request.method, path, query)
        if path.startswith("/api"):
            try:
                target = find_target(self._cluster.kinds, path)
            except (NoSuchPath, StatusError):
                if (document := discover(self._cluster.kinds, path, request.host)) is not None:
                    return web.Response(body=document, headers=_JSON)
                raise
            headers = request.headers
            call = Call(request.method, target, query, accept=headers.get("Accept", ""), user=user)
            if request.can_read_body:
                call.body, call.content_type = await _body(request), headers.get("Content-Type", "")
            if self.access.reviews.handles(call):
                return web.Response(body=self.access.reviews.respond(call), status=201, headers=_JSON)
            answer = await self._admission.answer(self._api, call)
            return await self._watch(request, answer) if isinstance(answer, Watch) else _response(answer)
        return self._of_server(request, path)

    def _of_server(self, request: web.BaseRequest, path: str) -> web.Response:
        """Handle a non-resource URL."""
        kinds = self._cluster.kinds
        if path == ACCESS_PATH:
            return self._serve_access(request.method)
        if path == "/version":
            return web.Response(body=discover(kinds, path, ""), headers=_JSON)
        if path.startswith(_HEALTH_PATHS):
            return web.Response(body=b"ok", headers=_TEXT)
        if path == "/openapi/v2":
            return web.Response(body=openapi.document_v2(kinds), headers={"Content-Type": openapi.PROTOBUF})
        if path == "/openapi/v3":
            return web.Response(body=openapi.index_v3(kinds), headers=_JSON)
        if path.startswith("/openapi/v3/"):
            group, version = _group_version(path.removeprefix("/openapi/v3/"))
            if (document := openapi.document_v3(kinds, group, version)) is not None:
                return web.Response(body=document, headers=_JSON)
        raise NoSuchPath

    def _serve_access(self, method: str) -> web.Response:
        if method == "DELETE":
            self.access.record.clear()
        return web.Response(body=self.access.record.encoded(), headers=_JSON)

    async def _watch(self, request: web.BaseRequest, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse(headers=_JSON)
        response.enable_chunked_encoding()
        chunks = watch.chunks()
        with contextlib.suppress(ConnectionError):  # the client has disconnected
            await response.prepare(request)
            async with contextlib.aclosing(chunks):
                async for chunk in chunks:
                    if chunk:
                        await response.write(chunk)
            if watch.cut:
                _break(request)
            else:
                await response.write_eof()
        return response

    async def _serve_faults(self, request: web.BaseRequest, path: str) -> web.Response:
        assert self._faults is not None
        try:
            return web.Response(body=self._faults.serve(request.method, path, await request.read()), headers=_JSON)
        except StatusError as error:
            return _failure(error)

    async def _inject(self, fault: Fault, request: web.BaseRequest) -> None:
        if fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if fault.status == 0:
            _break(request)
            raise ConnectionResetError
        if (error := fault.error) is not None:
            raise error


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_MAX_BODY_BYTES)


async def _body(request: web.BaseRequest) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise StatusError(413, f"Request entity too large: limit is {_MAX_BODY_BYTES}") from None


def _response(answer: Answer) -> web.Response:
    response = web.Response(body=answer.body, status=answer.status, headers=_JSON)
    for warning in answer.warnings:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def _failure(error: StatusError) -> web.Response:
    response = web.Response(body=error.encoded(), status=error.code, headers=_JSON)
    if error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    return response


def _break(request: web.BaseRequest) -> None:
    """Abort the connection, as a network failure does."""
    if request.transport is not None:
        request.transport.abort()


def _group_version(path: str) -> tuple[str, str]:
    match path.strip("/").split("/"):
        case ["api", version]:
            return "", version
        case ["apis", group, version]:
            return group, version
    raise no_such_resource()
