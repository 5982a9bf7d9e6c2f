"""ForecastService: one question at a time, bounded in size, time and number, from the cluster as it is followed."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import grpc
from grpc import aio

from muster.forecast import metrics
from muster.forecast.answer_codec import encode_starts
from muster.forecast.answers import Limits, answer_to
from muster.forecast.follower import Follower, NotFollowing
from muster.forecast.present import OtherVersion, Unreachable, read_known
from muster.forecast.questions import Asked, BadQuestion
from muster.forecast.settings import Settings
from muster.forecast.snapshot import Snapshot
from muster.forecast.starts import StartForecaster
from muster.forecast.v1 import forecast_pb2 as pb
from muster.forecast.v1 import forecast_pb2_grpc as pb_grpc
from muster.forecast.whatif import Forecaster
from muster.rpc.errors import RpcError
from muster.rpc.watch_codec import decode_batch

FULL_NAME: Final = "muster.forecast.v1.ForecastService"
_RESERVED_SECONDS: Final = 1.0
"""Part of a deadline that is held in reserve, so that an answer arrives before it."""


class ForecastServicer(pb_grpc.ForecastServiceServicer):
    """Answers by playing copies of the cluster that `follower` follows, with what `coordinator` knows."""

    def __init__(
        self,
        settings: Settings,
        follower: Follower,
        coordinator: aio.Channel,
        forecaster: Forecaster,
        start_forecaster: StartForecaster,
    ) -> None:
        self._settings, self._follower, self._coordinator = settings, follower, coordinator
        self._forecaster, self._start_forecaster = forecaster, start_forecaster
        self._playing = asyncio.Lock()
        self._waiting = 0
        """Calls that wait for their turn."""
        self._starts: tuple[float, pb.StartsResponse] | None = None
        """The last answer of Starts, and the monotonic time until which it is given again."""
        metrics.WAITING.read_from(lambda: {(): float(self._waiting)})
        metrics.STARTS_AGE.read_from(self._starts_age)

    async def WhatIf(self, request: pb.WhatIfRequest, context: Any) -> pb.WhatIfResponse:  # noqa: N802
        with _counted("WhatIf") as outcome:
            answer = await self._what_if(request, context)
            outcome.partial = answer.verdict == pb.VERDICT_UNKNOWN
        return answer

    async def _what_if(self, request: pb.WhatIfRequest, context: Any) -> pb.WhatIfResponse:
        asked = self._asked(request)
        async with self._turn("WhatIf"):
            present = await self._present()
            wanted = request.limit_seconds or self._settings.max_seconds
            limits = Limits(request.horizon_seconds or self._settings.horizon_seconds, self._limit(wanted, context, 2))
            try:
                return await answer_to(asked, present, request.priority_classes, limits, self._forecaster)
            except BadQuestion as error:
                raise _refused("invalid", grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None

    async def Starts(self, request: pb.StartsRequest, context: Any) -> pb.StartsResponse:  # noqa: N802
        with _counted("Starts") as outcome:
            if (known := self._known_starts()) is None:
                async with self._turn("Starts"):
                    if (known := self._known_starts()) is None:  # not found while this call waited
                        known = await self._find_starts(context)
            else:
                outcome.cached = True
            outcome.partial = known.partial
        if not request.namespace:
            return known
        there = [each for each in known.gangs if each.gang.split("/", 2)[1] == request.namespace]
        chosen = pb.StartsResponse()
        chosen.CopyFrom(known)
        del chosen.gangs[:]
        chosen.gangs.extend(there)
        return chosen

    async def _find_starts(self, context: Any) -> pb.StartsResponse:
        present, settings = await self._present(), self._settings
        limit = self._limit(settings.max_seconds, context, 1)
        found = await self._start_forecaster.starts(
            present,
            self._follower.lengths,
            self._follower.errors,
            horizon_seconds=settings.horizon_seconds,
            limit_seconds=limit,
        )
        response = encode_starts(found, present)
        self._starts = time.monotonic() + settings.starts_for_seconds, response
        return response

    def _known_starts(self) -> pb.StartsResponse | None:
        return self._starts[1] if self._starts is not None and time.monotonic() < self._starts[0] else None

    def _asked(self, request: pb.WhatIfRequest) -> Asked:
        """Raises RpcError INVALID_ARGUMENT."""
        if len(request.gangs.pods) > self._settings.max_pods:
            message = f"the question has {len(request.gangs.pods)} pods: at most {self._settings.max_pods} are played"
            raise _refused("too_many_pods", grpc.StatusCode.INVALID_ARGUMENT, message)
        try:
            added = decode_batch(request.gangs)
        except ValueError as error:
            message = f"the gangs cannot be decoded: {error}"
            raise _refused("invalid", grpc.StatusCode.INVALID_ARGUMENT, message) from None
        without = tuple(request.without_gangs), tuple(request.without_nodes)
        if request.existing_gang and added.pods:
            message = "the question has gangs of its own and names an existing one: ask one at a time"
            raise RpcError(grpc.StatusCode.INVALID_ARGUMENT, message)
        return Asked(added, *without, request.add_nodes, request.like, request.existing_gang)

    @asynccontextmanager
    async def _turn(self, method: str) -> AsyncIterator[None]:
        """One call plays at a time. Raises RpcError RESOURCE_EXHAUSTED if too many wait already."""
        if self._playing.locked() and self._waiting >= self._settings.max_waiting:
            message = f"{self._waiting} questions wait for an answer already, which is the limit: try again later"
            raise _refused("too_many_waiting", grpc.StatusCode.RESOURCE_EXHAUSTED, message)
        self._waiting += 1
        try:
            await self._playing.acquire()
        finally:
            self._waiting -= 1
        began = time.monotonic()
        try:
            yield
        finally:
            self._playing.release()
            metrics.ANSWER_SECONDS.labels(method).observe(time.monotonic() - began)

    def _starts_age(self) -> dict[tuple[str, ...], float]:
        if self._starts is None:
            return {}
        return {(): max(0.0, time.time() - self._starts[1].basis.read_unix_millis / 1000)}

    async def _present(self) -> Snapshot:
        """Raises RpcError UNAVAILABLE."""
        try:
            return await self._follower.snapshot(await read_known(self._coordinator))
        except (Unreachable, OtherVersion, NotFollowing) as error:
            raise _refused("unavailable", grpc.StatusCode.UNAVAILABLE, str(error)) from error

    def _limit(self, wanted: float, context: Any, parts: int) -> float:
        """Seconds for each part of an answer, of which all must end before the deadline of the call."""
        left = context.time_remaining()
        longest = self._settings.max_seconds
        if left is not None:
            longest = min(longest, max(0.0, left - _RESERVED_SECONDS) / parts)
        return max(0.0, min(wanted, longest))


@dataclass
class _Outcome:
    partial: bool = False
    cached: bool = False


@contextmanager
def _counted(method: str) -> Iterator[_Outcome]:
    """Count a question by its outcome."""
    outcome, counted = _Outcome(), "failed"
    try:
        yield outcome
        counted = "partial" if outcome.partial else "cached" if outcome.cached else "complete"
    except RpcError:
        counted = "refused"
        raise
    finally:
        metrics.REQUESTS.labels(method, counted).add()


def _refused(reason: str, code: grpc.StatusCode, message: str) -> RpcError:
    """The error of a question that is not answered."""
    metrics.REFUSALS.labels(reason).add()
    return RpcError(code, message)
