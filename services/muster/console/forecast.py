"""Client of the service forecast: what-if, and the expected starts of gangs that wait."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import grpc
import msgspec
from grpc import aio
from msgspec import Struct
from msgspec.structs import replace

from muster.clusterstate.suite import SYSTEM_CLASSES, BadManifests, Edits, Priority, gangs_of, parse_manifests
from muster.console.access import MAX_NAMESPACES
from muster.console.records import namespace_of
from muster.forecast.v1 import forecast_pb2 as pb
from muster.forecast.v1 import forecast_pb2_grpc as pb_grpc
from muster.gangs.facts import Batch
from muster.gangs.quoting import quoted
from muster.rpc.errors import in_words
from muster.rpc.watch_codec import encode_batch

MAX_MANIFEST: Final = 128 * 1024
"""Bytes of the manifests of a question."""
_MAX_AT_ONCE: Final = 4
"""Questions of all readers that are read or answered at the same time; the service has a queue of its own."""
MAX_AT_ONCE_OF_USER: Final = 2
"""Of one user; everybody is one without authentication."""
_LIMIT_SECONDS: Final = 15.0
"""For the answer, and again for the changes with which gangs would start now."""
_SOON_SECONDS: Final = 10.0
"""How far an existing gang is played of which only such changes are wanted."""
_CALL_SECONDS: Final = 60.0
"""The question may wait for others."""
_STARTS_SECONDS: Final = 90.0
_MAX_COUNT: Final = 10_000
_MOST_SHOWN: Final = 500
"""Pods, and pods that are evicted, in an answer; the others are counted."""
_OTHER: Final = "manifest"
_VERDICTS: Final = {
    pb.VERDICT_NOW: "now",
    pb.VERDICT_LATER: "later",
    pb.VERDICT_NEVER: "never",
    pb.VERDICT_UNKNOWN: "unknown",
}


class BadQuestion(ValueError):
    """A question that cannot be asked. The message quotes what is wrong."""


class NotAllowed(PermissionError):
    """The reader has no rights in a namespace of the question, which the message names."""


class NoForecast(RuntimeError):
    """There is no answer; the message says why."""


class Question(Struct, frozen=True, forbid_unknown_fields=True):
    """Question of a page: manifests, and the options of `muster whatif`. `priority`: number for all pods."""

    manifest: str
    namespace: str = "default"
    count: int | None = None
    topology: str = ""
    priority: int | None = None
    add_nodes: int = 0
    like: str = ""


class Asked(Struct, frozen=True):
    """A question with the facts of its gangs."""

    question: Question
    facts: Batch
    namespaces: frozenset[str]
    """Namespaces of its pods and gangs, and namespaces that its manifests name."""


def decode_question(body: bytes) -> Question:
    """Raises BadQuestion."""
    try:
        question = msgspec.json.decode(body, type=Question)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadQuestion(f"the question cannot be read: {error}") from error
    if len(question.manifest.encode(errors="replace")) > MAX_MANIFEST:
        raise BadQuestion(f"the manifests have more than {MAX_MANIFEST} bytes; use `muster whatif` in a terminal")
    if question.count is not None and not 1 <= question.count <= _MAX_COUNT:
        raise BadQuestion(f"the number of pods is {question.count}, but it must be 1 to {_MAX_COUNT}")
    if not 0 <= question.add_nodes <= _MAX_COUNT:
        raise BadQuestion(f"the number of nodes is {question.add_nodes}, but it must be 0 to {_MAX_COUNT}")
    if question.add_nodes and not question.like:
        raise BadQuestion("more nodes are asked for without the node that they are like: name it")
    if question.priority is not None and abs(question.priority) >= 2**31:
        raise BadQuestion(f"the priority is {question.priority}, which is not a number of 32 bits")
    return question


def _asked(question: Question) -> Asked:
    """Raises BadQuestion."""
    classes: Mapping[str, Priority] = SYSTEM_CLASSES
    edits = Edits(question.count, question.topology)
    if question.priority is not None:
        classes, edits = {_OTHER: Priority(question.priority)}, replace(edits, priority_class=_OTHER)
    try:
        manifests = parse_manifests(question.manifest, _OTHER)
        facts = gangs_of(manifests, question.namespace, classes, edits, _OTHER)
    except BadManifests as error:
        hint = "; or give the priority as a number" if "PriorityClass" in str(error) else ""
        raise BadQuestion(f"{error}{hint}") from error
    namespaces = {str((each.get("metadata") or {}).get("namespace") or "") for each in manifests} - {""}
    namespaces.update(pod.namespace for pod in facts.pods)
    # A PodGroup without pods replaces the gang of its name, so its namespace counts, too.
    namespaces.update(gang.namespace for gang in facts.gangs)
    return Asked(question, facts, frozenset(namespaces))


class Remedies(Struct, frozen=True):
    """Changes played for a gang that waits. `changes` complete "it would start now if"."""

    read_seconds: int
    """Of when the copy of the cluster is, since 1970."""
    starts_now: bool
    """The gang would start as it is."""
    changes: tuple[str, ...]


class ForecastClient:
    """Calls the service."""

    def __init__(self, channel: aio.Channel) -> None:
        self._stub = pb_grpc.ForecastServiceStub(channel)
        self._asking: Counter[str] = Counter()
        """Questions under way by user."""
        self._reading = asyncio.Lock()
        """Manifests of one question are read at a time: they may take a hundred megabytes."""

    @contextmanager
    def turn(self, user: str) -> Iterator[None]:
        """A user asks during the block. Raises NoForecast if too many questions are under way."""
        if self._asking[user] >= MAX_AT_ONCE_OF_USER:
            raise NoForecast(f"{MAX_AT_ONCE_OF_USER} questions of yours are being answered: wait for them")
        if self._asking.total() >= _MAX_AT_ONCE:
            raise NoForecast("other questions are being answered: try again in a minute")
        self._asking[user] += 1
        try:
            yield
        finally:
            self._asking[user] -= 1
            if not self._asking[user]:
                del self._asking[user]

    async def read(self, body: bytes) -> Asked:
        """Read a question off the event loop. Raises BadQuestion."""
        question = decode_question(body)
        async with self._reading:
            return await asyncio.to_thread(_asked, question)

    async def what_if(self, asked: Asked) -> pb.WhatIfResponse:
        """Ask the service forecast. Raises BadQuestion and NoForecast."""
        try:
            return await self._stub.WhatIf(
                pb.WhatIfRequest(
                    gangs=encode_batch(asked.facts),
                    add_nodes=asked.question.add_nodes,
                    like=asked.question.like,
                    limit_seconds=_LIMIT_SECONDS,
                ),
                timeout=_CALL_SECONDS,
            )
        except aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise BadQuestion(error.details() or "the service forecast rejects it") from error
            raise NoForecast(in_words(error, "the service forecast")) from error

    async def remedies(self, gang: str) -> Remedies:
        """Changes with which an existing gang would start now. Raises NoForecast."""
        request = pb.WhatIfRequest(existing_gang=gang, horizon_seconds=_SOON_SECONDS, limit_seconds=_LIMIT_SECONDS)
        try:
            answer = await self._stub.WhatIf(request, timeout=_CALL_SECONDS)
        except aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:  # it may have started meanwhile
                raise NoForecast(error.details() or "the service forecast rejects the question") from error
            raise NoForecast(in_words(error, "the service forecast")) from error
        read, now = answer.basis.read_unix_millis // 1000, answer.verdict == pb.VERDICT_NOW
        return Remedies(read, now, tuple(answer.would_start_now_if))

    async def starts(self) -> pb.StartsResponse:
        """The expected starts of all gangs that wait. Raises NoForecast."""
        try:
            return await self._stub.Starts(pb.StartsRequest(), timeout=_STARTS_SECONDS)
        except aio.AioRpcError as error:
            raise NoForecast(in_words(error, "the service forecast")) from error


def answer_page(answer: pb.WhatIfResponse, asked: Asked, namespaces: Collection[str] | None) -> dict[str, Any]:
    """The answer for a reader with rights in these namespaces, None for all: of others not even names are in it."""
    seen = [each for each in answer.preempts if _may_see(each.gang, namespaces)]
    ends = [gang for gang in map(_gang, answer.after_the_ends_of) if _may_see(gang, namespaces)]
    reason_hidden = names_others(answer.reason, namespaces)
    changes = [each for each in answer.would_start_now_if if not names_others(each, namespaces)]
    return {
        "verdict": _VERDICTS.get(answer.verdict, "unknown"),
        "asked": len(asked.facts.pods),
        "started": len(answer.pods),
        "nodes": len({each.node for each in answer.pods}),
        "at": round(answer.basis.read_unix_millis / 1000 + answer.after_seconds)
        if answer.HasField("after_seconds")
        else None,
        "after_seconds": answer.after_seconds if answer.HasField("after_seconds") else None,
        "pods": [
            {"pod": each.pod, "node": each.node, "rank": each.rank if each.HasField("rank") else None}
            for each in answer.pods[:_MOST_SHOWN]
        ],
        "preempts": [{"gang": each.gang, "pods": list(each.pods[:_MOST_SHOWN])} for each in seen[:_MOST_SHOWN]],
        "preempts_hidden": len(answer.preempts) - len(seen),
        "after_the_ends_of": ends[:_MOST_SHOWN],
        "ends_hidden": len(answer.after_the_ends_of) - len(ends),
        "reason": "" if reason_hidden else answer.reason,
        "reason_hidden": reason_hidden,
        "would_start_now_if": changes,
        "changes_hidden": len(answer.would_start_now_if) - len(changes),
        "replaces": [gang for gang in answer.replaces if _may_see(gang, namespaces)],
        "read": answer.basis.read_unix_millis // 1000,
        "exact": answer.basis.exact,
    }


def start_row(start: pb.ExpectedStart) -> dict[str, Any]:
    """The row of a gang that waits; times in seconds since 1970, 0: not known."""
    return {
        "id": start.gang,
        "verdict": _VERDICTS.get(start.verdict, "unknown"),
        "expected": start.expected_unix_millis // 1000,
        "earliest": start.earliest_unix_millis // 1000,
        "latest": start.latest_unix_millis // 1000,
    }


def check_allowed(asked: Asked, namespaces: Collection[str] | None) -> None:
    """A reader with rights in these namespaces may ask. Raises NotAllowed."""
    others = sorted(asked.namespaces.difference(namespaces)) if namespaces is not None else []
    if others:
        raise NotAllowed(f"you may not read pods in namespace {quoted(others[0])}")


def named_namespaces(answer: pb.WhatIfResponse) -> frozenset[str]:
    """Namespaces of the gangs that an answer names, at most MAX_NAMESPACES."""
    gangs = (*(each.gang for each in answer.preempts), *map(_gang, answer.after_the_ends_of), *answer.replaces)
    found = dict.fromkeys(namespace_of(gang) for gang in gangs)
    return frozenset(list(found)[:MAX_NAMESPACES])


def _gang(name: str) -> str:
    """The id: a pod of no gang, "namespace/name", is one by itself."""
    return f"plain/{name}" if name.count("/") == 1 else name


def _may_see(gang: str, namespaces: Collection[str] | None) -> bool:
    return namespaces is None or namespace_of(gang) in namespaces


def names_others(text: str, namespaces: Collection[str] | None) -> bool:
    """The text has a "namespace/name" of another namespace. Keys of labels have dots before the slash, and two numbers
    are a share.
    """
    if namespaces is None:
        return False
    words = [word.strip("\"'()[],.;:") for word in text.split()]
    pairs = [word.split("/") for word in words if "/" in word]
    named = {names[-2] for names in pairs if "." not in names[-2] and not all(map(str.isdigit, names))}
    return not named <= set(namespaces)
