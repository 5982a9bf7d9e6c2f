"""A scripted validating admission webhook over HTTPS that records its reviews."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from builders.net.certificates import Authority

JSON = dict[str, Any]
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def allows(_: JSON) -> JSON:
    return {"allowed": True}


def refuses(message: str, **status: Any) -> Callable[[JSON], JSON]:
    return lambda _: {"allowed": False, "status": {"message": message, **status}}


class Webhook:
    """Answers each review with `answer(request)`, or with the response of `responds`."""

    def __init__(self, authority: Authority) -> None:
        self.asked: list[JSON] = []
        self.answer: Callable[[JSON], JSON] = allows
        self.responds: Callable[[JSON], Any] | None = None
        self.held: asyncio.Event | None = None
        """Reviews wait until it is set."""
        self.url = ""
        self.ca_bundle = base64.b64encode(authority.certificate.read_bytes()).decode()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        content = msgspec.json.decode(await request.read())["request"]
        self.asked.append(content)
        if self.held is not None:
            await self.held.wait()
        if self.responds is not None:
            return web.json_response(self.responds(content))
        response = {"uid": content["uid"], **self.answer(content)}
        return web.json_response({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})

    def configuration(self, *rules: JSON, name: str = "test", **more: Any) -> JSON:
        """A ValidatingWebhookConfiguration for this webhook; by default for creation of pods."""
        about_pods = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        webhook = {
            "name": f"{name}.example.com",
            "clientConfig": {"url": self.url, "caBundle": self.ca_bundle},
            "rules": list(rules) or [about_pods],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            **more,
        }
        return {"metadata": {"name": name}, "webhooks": [webhook]}


@asynccontextmanager
async def serving_webhook(directory: Path) -> AsyncIterator[Webhook]:
    authority = Authority(directory)
    files = authority.issue("webhook")
    assert files.certificate_file is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate_file, files.key_file)
    webhook = Webhook(authority)
    runner = web.ServerRunner(web.Server(webhook.handle), shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    webhook.url = f"https://127.0.0.1:{runner.addresses[0][1]}/review"
    try:
        yield webhook
    finally:
        await runner.cleanup()
