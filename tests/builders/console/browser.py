"""Chromium without a screen, driven by its DevTools protocol."""

import asyncio
import base64
import contextlib
import itertools
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from builders.wait import WAIT_SECONDS, eventually

JSON = dict[str, Any]

_PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
_FLAGS: Final = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--disable-domain-reliability", "--no-default-browser-check", "--hide-scrollbars", "--force-color-profile=srgb"),
    *("--ignore-certificate-errors", "--remote-debugging-port=0", "--force-device-scale-factor=1"),
)
_KEYS: Final = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def needs_chromium() -> pytest.MarkDecorator:
    """Skips where no Chromium is installed; CI installs it."""
    found = any(map(shutil.which, _PROGRAMS))
    return pytest.mark.skipif(not found, reason="needs Chromium: apt-get install chromium")


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[JSON]] = {}
        self.requests: list[str] = []
        """URLs that were requested."""
        self.errors: list[str] = []
        """Uncaught exceptions and what the browser refused, such as violations of the Content-Security-Policy."""

    async def call(self, method: str, **parameters: Any) -> JSON:
        """Call a method of the protocol. Fails if the browser answers with an error."""
        number = next(self._numbers)
        answer = self._calls[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        return await asyncio.wait_for(answer, WAIT_SECONDS)

    async def receive(self) -> None:
        """Take in what the browser sends, until it ends."""
        async for message in self._socket:
            content = json.loads(message.data)
            if "id" in content:
                self._answer(content)
            elif content["method"] == "Network.requestWillBeSent":
                self.requests.append(content["params"]["request"]["url"])
            elif content["method"] == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(content["params"]["exceptionDetails"]))
            elif content["method"] == "Log.entryAdded" and content["params"]["entry"]["source"] == "security":
                self.errors.append(content["params"]["entry"]["text"])

    def _answer(self, content: JSON) -> None:
        call = self._calls.pop(content["id"])
        if call.done():
            return
        if "error" in content:
            call.set_exception(AssertionError(content["error"]))
        else:
            call.set_result(content["result"])

    async def open(self, url: str) -> None:
        """Load a page anew."""
        await self.call("Page.navigate", url="about:blank")
        await self.call("Page.navigate", url=url)

    async def js(self, expression: str) -> Any:
        """The value of an expression, awaited if it is a promise."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def until(self, condition: str, what: str = "") -> Any:
        """Wait until an expression is true; return its value. Fails with the text of the page."""

        async def holds() -> Any:
            with contextlib.suppress(AssertionError):  # the page is being loaded
                return await self.js(condition)

        try:
            return await eventually(holds, what or condition, every_seconds=0.05)
        except AssertionError as error:
            text = await self.js("document.body.innerText")
            raise AssertionError(f"{error}\n{text}\nerrors: {self.errors}") from None

    async def shows(self, *texts: str) -> None:
        """Wait until the visible text of the page contains these."""
        for text in texts:
            await self.until(f"document.body.innerText.includes({json.dumps(text)})", f"{text!r} is shown")

    async def text(self) -> str:
        """The visible text of the page."""
        return str(await self.js("document.body.innerText"))

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the window."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )

    async def use_scheme(self, scheme: str) -> None:
        """The person prefers "light" or "dark"."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def press(self, key: str, text: str = "") -> None:
        """Press and release a key."""
        common = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS.get(key, 0)}
        await self.call(
            "Input.dispatchKeyEvent", type="keyDown", text=text or ("\r" if key == "Enter" else ""), **common
        )
        await self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    async def enter(self, text: str) -> None:
        """Enter text where the focus is."""
        await self.call("Input.insertText", text=text)

    async def point_at(self, x: float, y: float) -> None:
        """Move the mouse."""
        await self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    async def screenshot(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])


@contextlib.asynccontextmanager
async def chromium(directory: Path) -> AsyncIterator[Page]:
    """A browser with an empty profile in that directory, with one tab of 1,280 x 800."""
    program = next(found for found in map(shutil.which, _PROGRAMS) if found)
    log = (directory / "chromium.log").open("w")
    process = await asyncio.create_subprocess_exec(
        program, *_FLAGS, f"--user-data-dir={directory / 'profile'}", "about:blank", stdout=log, stderr=log
    )
    receiving: asyncio.Task[None] | None = None
    try:
        async with aiohttp.ClientSession() as session:
            port = await eventually(lambda: _port(directory / "profile"), "Chromium listens")
            async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
                tab = await answer.json()
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                receiving = asyncio.create_task(page.receive())
                for domain in ("Page", "Runtime", "Network", "Log"):
                    await page.call(f"{domain}.enable")
                await page.resize(1280, 800)
                yield page
    finally:
        if receiving is not None:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
        if process.returncode is None:
            process.kill()
        await process.wait()
        log.close()


def _port(profile: Path) -> str | None:
    with contextlib.suppress(FileNotFoundError):
        lines = (profile / "DevToolsActivePort").read_text().splitlines()
        return lines[0] if lines else None
    return None
