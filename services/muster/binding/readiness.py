"""Ready while the API server answers; a short silence is bridged, because calls wait it out anyway."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from muster.kube.responses import KubeUnreachable
from muster.kube.session import KubeSession

_LOOK_SECONDS: Final = 2.0
_ANSWER_SECONDS: Final = 3.0
_SILENCE_SECONDS: Final = 10.0

_log = structlog.get_logger()


async def follow_readiness(
    session: KubeSession,
    tell: Callable[[bool], None],
    *,
    look_seconds: float = _LOOK_SECONDS,
    silence_seconds: float = _SILENCE_SECONDS,
) -> None:
    """Tell, until cancelled, whether the API server can be used. Not before it has answered once."""
    loop = asyncio.get_running_loop()
    answered = float("-inf")
    trouble = ""
    while True:
        before, trouble = trouble, await _trouble(session)
        if not trouble:
            answered = loop.time()
            if before:
                _log.info("the API server answers again", server=session.server)
        elif trouble != before:
            _log.warning("the API server is in trouble", server=session.server, trouble=trouble)
        tell(loop.time() - answered <= silence_seconds)
        await asyncio.sleep(look_seconds)


async def _trouble(session: KubeSession) -> str:
    """Why the API server cannot be used; empty if it can."""
    try:
        response = await session.request("GET", "/readyz", timeout_seconds=_ANSWER_SECONDS)
    except KubeUnreachable as error:
        return str(error)
    if response.status == 401:
        return "401: it does not accept our credentials"
    if response.status >= 500:
        return f"{response.status}: it is not ready"
    return ""
