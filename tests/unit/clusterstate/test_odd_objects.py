"""Objects with any values anywhere never end the state: it can be sent, and later states of the objects are read."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.clusterstate.history import (
    Object,
    budget_object,
    node_object,
    pod_object,
    priority_class_object,
    sakkara_map_object,
    settle,
    topology_map_object,
)
from muster.clusterstate.state import ClusterState
from muster.dialects import koordinator, registry
from muster.gangs.facts import GangFacts
from muster.kube.api_resources import ALL, PODS, ApiResource, topologies
from muster.kube.malformed_objects import MalformedObjects, Reason, Unreadable
from muster.kube.metrics import MALFORMED
from muster.kube.object_changes import ObjectChanges
from muster.kube.objects import BadObject
from muster.kube.watch_decoding import WatchDecoder
from muster.rpc.watch_codec import encode_batch

NEST = "<nested>"
SURROGATE = "<surrogate>"
NOT_UTF_8 = "<latin>"
RAW = {
    f'"{NEST}"': b"[" * 3000 + b"]" * 3000,
    f'"{SURROGATE}"': b'"\\ud800"',
    f'"{NOT_UTF_8}"': b'"\xff\xfe"',
    '"<huge>"': b"1e999999",
    '"<long>"': b"9" * 6000,
    '"<deep-map>"': b'{"a":' * 900 + b"1" + b"}" * 900,
}
odd_values: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([json.loads(each) for each in RAW]),
    st.sampled_from(
        [None, True, -1, 0, 2**31, 2**63, 2**64, 10**40, 1.5, "", "\x00", "9" * 5000, "1e99999", "a" * 3000]
    ),
    st.sampled_from(
        ["[" * 3000, '["' + "\\ud800" + '"]', '{"\\udc00": {}}', "[" * 500 + "]" * 500, "2147483648", "🙂"]
    ),
    st.lists(st.sampled_from([None, 1, "x", {}, [1]]), max_size=3),
    st.dictionaries(st.sampled_from(["", "a", "name", "cpu"]), st.sampled_from([None, 1, "x", {}]), max_size=3),
)

GANG = {
    koordinator.GANG_NAME: "g",
    koordinator.MIN_AVAILABLE: "2",
    koordinator.GROUPS: '["ml/g","ml/h"]',
    koordinator.NETWORK_TOPOLOGY: '{"gatherStrategy": [{"layer": "rack", "strategy": "MustGather"}]}',
    "muster.dev/topology": "rack: hard pack",
    "muster.dev/expected-duration": "1h",
}
LABELS = {"scheduling.x-k8s.io/pod-group": "g", "sakkara.group.name": "k", "sakkara.group.size": "2"}
OBJECTS: dict[str, list[Object]] = {
    "pods": [
        pod_object(
            "a",
            annotations=GANG,
            node="n",
            tolerations=[{"key": "k"}],
            volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
            affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "x"}]}},
        ),
        pod_object("b", labels=LABELS, owner="job-1", schedulingGroup={"podGroupName": "g"}, priority=5),
        pod_object("c", annotations={"scheduling.k8s.io/group-name": "g"}, node="n", phase="Running", started=3),
    ],
    "nodes": [node_object("n")],
    "priorityclasses.scheduling.k8s.io": [priority_class_object("high", 5)],
    "poddisruptionbudgets.policy": [budget_object("p")],
    "configmaps": [topology_map_object("t", {"r": {"n": {}}}), sakkara_map_object("k", size="2")],
}
GROUP_SPEC = {
    "minMember": 2,
    "minNumber": 2,
    "minResources": {"cpu": "2"},
    "scheduleTimeoutSeconds": 5,
    "priorityClassName": "high",
    "minAvailable": 2,
    "nodeSelector": {"a": "b"},
    "policy": [{"event": "Unschedulable", "action": "Restart", "timeout": "5s"}],
    "schedulingPolicy": {"gang": {"minCount": 2}},
    "schedulingConstraints": {"topology": [{"key": "rack"}]},
    "volumeName": "v",
    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]}},
}
RESOURCES: tuple[ApiResource[Any], ...] = (*ALL, topologies("default"))


def manifest(resource: ApiResource[Any], at: int) -> Object:
    known = OBJECTS.get(resource.kind)
    if known is not None:
        return copy.deepcopy(known[at % len(known)])
    metadata = {"name": "g", "namespace": "ml", "uid": "uid-g", "annotations": dict(GANG), "labels": dict(LABELS)}
    return {"metadata": metadata, "spec": copy.deepcopy(GROUP_SPEC), "data": {"size": "2"}, "status": {"phase": "x"}}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all values within a value."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in entries:
        yield (*path, key)
        yield from places(below, (*path, key))


def put(content: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        content = content[key]
    content[path[-1]] = copy.deepcopy(value)


def encoded(content: Any) -> bytes:
    text = json.dumps(content).encode()
    for mark, raw in RAW.items():
        text = text.replace(mark.encode(), raw)
    return text


class Replica:
    """The state of a replica that reads events as its informers do."""

    def __init__(self) -> None:
        self.state = ClusterState(("muster",))
        settle(self.state)
        self.revision = 10

    def event(self, resource: ApiResource[Any], kind: str, content: Any) -> Any:
        self.revision += 1
        decoder = WatchDecoder(resource, MalformedObjects(resource.kind))
        try:
            event = decoder.event(b'{"type":"' + kind.encode() + b'","object":' + encoded(content) + b"}")
        except BadObject:
            return None
        if not isinstance(event, Unreadable):
            items = [event]
            rejected = MALFORMED.labels(resource.kind, Reason.REJECTED.value)
            before = rejected.value
            assert getattr(event, "uid", "") or event.metadata.uid  # type: ignore[union-attr]
            batch, _ = self.state.apply(ObjectChanges(resource.kind, items, self.revision))
            encode_batch(batch).SerializeToString()
            assert rejected.value == before, "no computation failed"
        return event


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_value_anywhere_leaves_a_state_that_goes_on(data: st.DataObject) -> None:
    replica = Replica()
    for _ in range(data.draw(st.integers(1, 4))):
        resource = data.draw(st.sampled_from(RESOURCES))
        sound = manifest(resource, data.draw(st.integers(0, 2)))
        sound["metadata"]["resourceVersion"] = str(replica.revision)
        odd = copy.deepcopy(sound)
        for _ in range(data.draw(st.integers(1, 2))):
            put(odd, data.draw(st.sampled_from(list(places(odd)))), data.draw(odd_values))
        replica.event(resource, data.draw(st.sampled_from(["ADDED", "MODIFIED"])), odd)
        encode_batch(replica.state.review()).SerializeToString()
        later = replica.event(resource, "MODIFIED", sound)
        assert later.metadata.uid == sound["metadata"]["uid"], "a later readable state is read"
    encode_batch(replica.state.snapshot()).SerializeToString()


def test_declaration_that_fails_to_be_read_blocks_its_gang_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    read = registry.read_gang

    def failing(gang_id: str, *rest: Any) -> GangFacts:
        if gang_id.endswith("/odd"):
            raise RecursionError("nested")
        return read(gang_id, *rest)

    monkeypatch.setattr(registry, "read_gang", failing)
    replica = Replica()
    for gang in ("odd", "sound"):
        pod = pod_object(gang, annotations={**GANG, koordinator.GANG_NAME: gang})
        pod["metadata"]["resourceVersion"] = "3"
        replica.event(PODS, "ADDED", pod)
    odd, sound = (replica.state.gangs.facts[f"koordinator/ml/{gang}"] for gang in ("odd", "sound"))
    assert odd.blocked and "RecursionError" in odd.problems[0].message
    assert not sound.blocked
