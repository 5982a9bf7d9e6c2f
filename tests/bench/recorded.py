"""A process that acts as cluster-state: a large cluster as messages encoded in advance, sent as fast as they are read.

It writes its port to standard output when everything is encoded, and then a number for each line that it reads: the
revision of pods at the end of the next part, which it then sends. The first part is a second snapshot.
"""

import asyncio
import random
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from hashlib import md5
from itertools import islice
from typing import Any, Final

import grpc
import uvloop
from grpc import aio
from msgspec import structs

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.clusterstate.watch import FULL_NAME
from muster.config.settings import PLAIN_TEXT
from muster.gangs.facts import PODS, Batch, NodeFacts, PodClass, PodFacts, PodPhase, PodTerm
from muster.gangs.selectors import (
    EVERYTHING_SELECTED,
    LabelSelector,
    LabelSet,
    Operator,
    PodSelector,
    Requirement,
)
from muster.rpc.server import RpcServer
from muster.rpc.watch_codec import batch_step, snapshot_begin_step, synced_step
from muster.telemetry.logs import configure_logs

GIB: Final = 2**30
_PIECE: Final = 1000
_CLASSES: Final = 200
_NAMESPACES: Final = 300
_GANG: Final = 16
_RACK: Final = 32
_ZONES: Final = 8


@dataclass(frozen=True)
class Part:
    """Messages sent in sequence, each when the one before was read; `through` is the revision at the end."""

    through: int
    messages: list[bytes]


class _Life:
    """A pod after its creation and `stages` further stages of its life."""

    def __init__(self, stages: Iterator[PodFacts], skipped: int = 0) -> None:
        self._stages = islice(stages, skipped, None)
        self.uid = ""

    def next(self) -> PodFacts | None:
        stage = next(self._stages, None)
        if stage is not None:
            self.uid = stage.uid
        return stage


def _encoded(step: pb.WatchResponse) -> bytes:
    return step.SerializeToString()


class Recording:
    """The snapshot of a cluster and its later deltas, as messages."""

    def __init__(self, nodes: int, pods: int, changes: int, batch_sizes: tuple[int, ...]) -> None:
        self._chance = random.Random(7)
        self._label_sets: dict[str, LabelSet] = {}
        self._unsent: list[LabelSet] = []
        self._nodes = [f"node-{index:06}.zone-{index % _ZONES}.compute.internal" for index in range(nodes)]
        self._revision = 1000
        self.snapshot = [_encoded(snapshot_begin_step("subscribed"))]
        classes, selectors = tuple(map(_pod_class, range(_CLASSES))), tuple(map(_selector, range(0, _CLASSES, 4)))
        self.snapshot.append(_encoded(batch_step(Batch(pod_classes=classes, selectors=selectors))))
        for start in range(0, nodes, _PIECE):
            facts = tuple(map(self._node, range(start, min(start + _PIECE, nodes))))
            self.snapshot.append(_encoded(batch_step(Batch(nodes=facts))))
        for start in range(0, pods, _PIECE):
            running = tuple(self._pod(index, running=True) for index in range(start, min(start + _PIECE, pods)))
            self._revision += _PIECE
            self.snapshot.append(_encoded(batch_step(Batch(pods=running, label_sets=self._take_label_sets()))))
        self.snapshot.append(_encoded(synced_step({"pods": self._revision, "nodes": 1000})))
        self._revision += 1
        again = [
            _encoded(snapshot_begin_step("again")),
            *self.snapshot[1:-1],
            _encoded(synced_step({"pods": self._revision, "nodes": 1000})),
        ]
        self.parts = [Part(self._revision, again), *(self._part(changes, size) for size in batch_sizes)]

    def _part(self, changes: int, batch_size: int) -> Part:
        """Create and delete pods, `batch` changes per message; at the end all of them are deleted."""
        messages = []
        lives = [_Life(self._stages(index), skipped=index % 5) for index in range(batch_size)]
        for _ in range(changes // batch_size):
            pods, gone = [], []
            for index, life in enumerate(lives):
                stage = life.next()
                if stage is None:
                    gone.extend([life.uid] if life.uid else [])
                    lives[index] = _Life(self._stages(index))
                else:
                    pods.append(stage)
            messages.append(self._batch(pods, gone))
        messages.append(self._batch([], [life.uid for life in lives if life.uid]))
        return Part(self._revision, messages)

    def _batch(self, pods: list[PodFacts], gone: list[str]) -> bytes:
        self._revision += len(pods) + len(gone) + 1
        through = {"pods": self._revision}
        return _encoded(
            batch_step(
                Batch(
                    pods=tuple(pods),
                    removed_pods=tuple(gone),
                    changed=through,
                    through=through,
                    label_sets=self._take_label_sets(),
                )
            )
        )

    def _take_label_sets(self) -> tuple[LabelSet, ...]:
        unsent, self._unsent = self._unsent, []
        return tuple(unsent)

    def _stages(self, index: int) -> Iterator[PodFacts]:
        pod = self._pod(index, running=False)
        node = self._chance.choice(self._nodes)
        bound = structs.replace(pod, node=node)
        yield pod
        yield bound
        yield structs.replace(bound, phase=PodPhase.RUNNING)
        yield structs.replace(bound, phase=PodPhase.SUCCEEDED)

    def _pod(self, index: int, running: bool) -> PodFacts:
        namespace = f"team-{index // _GANG % _NAMESPACES:03}"
        label_set = _label_set(namespace, index)
        if label_set.id not in self._label_sets:
            self._label_sets[label_set.id] = label_set
            self._unsent.append(label_set)
        return PodFacts(
            str(uuid.UUID(int=self._chance.getrandbits(128), version=4)),
            namespace,
            f"training-{index // _GANG:06}-worker-{index % _GANG}",
            f"{index // _GANG % _CLASSES:016x}",
            self._revision + index % _PIECE,
            self._nodes[self._chance.randrange(len(self._nodes))] if running else "",
            PodPhase.RUNNING if running else PodPhase.PENDING,
            created_seconds=1_790_000_000 + index // _GANG,
            gang=f"koordinator/{namespace}/training-{index // _GANG:06}",
            started_seconds=1_790_000_010 + index // _GANG if running else 0,
            label_set=label_set.id,
        )

    def _node(self, index: int) -> NodeFacts:
        name, zone = self._nodes[index], f"zone-{index % _ZONES}"
        offers = [("cpu", 64_000), ("ephemeral-storage", 500 * GIB), ("memory", 256 * GIB), (PODS, 110)]
        if index % 8 == 0:
            offers.append(("nvidia.com/gpu", 8))
        labels = {
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "gpu-8" if index % 8 == 0 else "cpu-64",
            "rack": f"rack-{index // _RACK:05}",
            "topology.kubernetes.io/region": "region-1",
            "topology.kubernetes.io/zone": zone,
        }
        uid = str(uuid.UUID(int=self._chance.getrandbits(128), version=4))
        return NodeFacts(name, uid, 1000, tuple(sorted(offers)), labels)


def _pod_class(number: int) -> PodClass:
    """Every fourth gang has anti-affinity, so that its pods have to be counted."""
    cpu = (1000, 500, 2000, 4000)[number % 4]
    requests = (("cpu", cpu), ("memory", (number + 1) * GIB // 16), (PODS, 1))
    if number % 4:
        return PodClass(f"{number:016x}", requests)
    term = PodTerm(f"selector-{number}", "kubernetes.io/hostname")
    return PodClass(f"{number:016x}", requests, required_pod_anti_affinity=(term,))


def _selector(number: int) -> PodSelector:
    """The pods of a class; of all namespaces."""
    labels = LabelSelector((Requirement("template", Operator.IN, (str(number),)),))
    return PodSelector(f"selector-{number}", (), EVERYTHING_SELECTED, labels)


def _label_set(namespace: str, index: int) -> LabelSet:
    """The labels of pods of a Job; every second one is indexed, so that each of its pods has labels of its own."""
    number = index // _GANG
    content = {"app": "training", "job-name": f"training-{number:06}", "template": str(number % _CLASSES)}
    if number % 2:
        content["batch.kubernetes.io/job-completion-index"] = str(index % _GANG)
    pairs = sorted(content.items())
    return LabelSet(
        md5(f"{namespace} {pairs}".encode()).hexdigest(),
        namespace,
        tuple(key for key, _ in pairs),
        tuple(value for _, value in pairs),
    )


class _Watch:
    """Sends the snapshot, then each part on request."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.asked: asyncio.Queue[Part] = asyncio.Queue()

    async def watch(self, request: pb.WatchRequest, context: aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
        for message in self._recording.snapshot:
            yield message
        while True:
            part = await self.asked.get()
            for message in part.messages:
                yield message

    def register(self, _: object, server: aio.Server) -> None:
        method = grpc.unary_stream_rpc_method_handler(
            self.watch, request_deserializer=pb.WatchRequest.FromString, response_serializer=bytes
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(FULL_NAME, {"Watch": method}),))


async def serve(recording: Recording) -> None:
    """Serve until standard input ends."""
    watch = _Watch(recording)
    server = RpcServer("127.0.0.1:0", PLAIN_TEXT, "recorded")
    server.add(watch.register, None, FULL_NAME)
    print(await server.start(), flush=True)
    server.set_ready(True)
    loop = asyncio.get_running_loop()
    for part in recording.parts:
        if not await loop.run_in_executor(None, sys.stdin.readline):
            break
        print(part.through, flush=True)
        watch.asked.put_nowait(part)
    await loop.run_in_executor(None, sys.stdin.read)
    await server.stop(0)


if __name__ == "__main__":
    configure_logs("recorded", "warning")
    nodes, pods, changes, *sizes = map(int, sys.argv[1:])
    uvloop.run(serve(Recording(nodes, pods, changes, tuple(sizes))))
