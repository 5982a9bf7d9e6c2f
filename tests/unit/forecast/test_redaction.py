"""Redacted snapshots: no name is left, and what-if answers the same."""

import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from builders.core.objects import node, racks
from builders.forecast.random_clusters import CLASSES, RandomCluster
from builders.forecast.solver import FirstFit
from builders.gangs.facts import gang
from muster.coordinator.core.events import PodName, Record, RecordState, Seat
from muster.coordinator.core.hold.hold_and_wait import declaration
from muster.coordinator.core.term_state import HoldingGang, NominatedGroup, PausedGroup, QueueTermState, TermState
from muster.devices.facts import Claim, Device, DeviceId, Slice
from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.redaction import Redaction, redact
from muster.forecast.snapshot import Snapshot, write
from muster.forecast.virtual_cluster import VirtualCluster
from muster.forecast.whatif import Forecaster, Question
from muster.gangs.facts import (
    Batch,
    DeviceObject,
    DeviceObjectKind,
    DisruptionBudget,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    ObjectReference,
    PodClass,
    Problem,
    Severity,
    StaticClaim,
    StaticVolume,
    Taint,
    TaintEffect,
)
from muster.gangs.selectors import LabelSelector, LabelSet, NamespaceFacts, Operator, Requirement, pod_selector

SECRETS = (
    *("acme", "falcon", "warehouse", "rowseven", "goldtier", "teamalpha", "scratchclaim", "localvolume"),
    *("calmbudget", "because-of-acme", "poolomega", "gpuclaim", "ghostnode"),
)
PODS = 3


def secret_snapshot() -> Snapshot:
    """A cluster in which all names are secrets."""
    made = gang("falcon", "acme").of(PODS)
    declared = replace(
        made.gang_facts(),
        terms=("minimum of falcon",),
        problems=(Problem(Severity.WARNING, "because-of-acme", "Odd"),),
        definition=ObjectReference("scheduling.x-k8s.io/v1alpha1", "PodGroup", "acme", "falcon", "uid-of-falcon"),
    )
    pods = tuple(
        replace(
            pod,
            label_set="labels-of-falcon",
            claims=("scratchclaim",),
            budgets=("acme/calmbudget",),
            problem="because-of-acme",
        )
        for pod in made.pods()
    )
    team = LabelSelector((Requirement("team", Operator.IN, ("teamalpha",)),))
    places = NodeSelectorTerm((NodeRequirement("row", NodeOperator.IN, ("rowseven",)),))
    picky = PodClass("picky", node_selector=(("row", "rowseven"),), required_node_affinity=(places,))
    claim = Claim("acme", "gpuclaim", "uid-of-gpuclaim", reserved_for=("acme/falcon-0@1",))
    offers = Slice(
        "slice-of-warehouse-1", "gpu.example.com", "poolomega", node_name="warehouse-1", devices=(Device("gpu-0"),)
    )
    batch = Batch(
        nodes=(
            node(
                "warehouse-1",
                8,
                labels={"row": "rowseven", "kubernetes.io/hostname": "warehouse-1", "slots": "8"},
                taints=(Taint("tier", "goldtier", TaintEffect.NO_SCHEDULE),),
            ),
        ),
        pod_classes=(*CLASSES, picky),
        gangs=(declared,),
        pods=pods,
        label_sets=(LabelSet("labels-of-falcon", "acme", ("team",), ("teamalpha",)),),
        selectors=(pod_selector(team, ["acme"]),),
        namespaces=(NamespaceFacts("acme", {"team": "teamalpha"}),),
        budgets=(DisruptionBudget("acme/calmbudget", 1),),
        trees=(racks(rowseven="warehouse-1"),),
        static_volumes=(StaticVolume("localvolume", "local", claim="acme/scratchclaim"),),
        static_claims=(StaticClaim("acme/scratchclaim", "local"),),
        device_objects=(
            DeviceObject(DeviceObjectKind.CLAIM, "acme/gpuclaim", msgspec.json.encode(claim)),
            DeviceObject(DeviceObjectKind.SLICE, offers.name, msgspec.json.encode(offers)),
        ),
    )
    seat = Seat(
        "acme/falcon-0@1", "acme", "falcon-0", "cpu1", "warehouse-1", volumes=(("scratchclaim", "localvolume"),)
    )
    record = Record(
        made.id,
        "1",
        RecordState.BINDING,
        seats=(seat,),
        timed_out_declaration=declaration(declared),
        timing_out=(PodName("acme/falcon-1@1", "acme", "falcon-1"),),
        evicted_for="test/acme/falcon",
        ranks=(("acme/falcon-0@1", 0),),
    )
    state = TermState(
        queue=QueueTermState((PausedGroup(made.id, 5.0, 1),)),
        nominations=(NominatedGroup(made.id, made.id, (("ghostnode", "cpu1", 2),), leaving=("acme/falcon-2@1",)),),
        holds=(HoldingGang(made.id, 5.0, (seat,)),),
    )
    return Snapshot(1000.0, {}, (record,), batch, state)


def test_no_name_is_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "redacted.zip"
    write(redact(secret_snapshot()), file)

    with zipfile.ZipFile(file) as archive:
        content = b"".join(archive.read(each) for each in archive.namelist())
    assert [secret for secret in SECRETS if secret.encode() in content] == []


def test_what_the_rules_compare_by_word_is_kept() -> None:
    batch = redact(secret_snapshot()).batch
    (facts,) = batch.gangs
    (only,) = batch.nodes

    assert facts.id.startswith("test/")
    assert only.allocatable == (("cpu", 8000), ("pods", 110))
    assert only.labels.keys() == {"row", "kubernetes.io/hostname", "slots"}
    assert only.labels["slots"] == "8"
    assert only.labels["kubernetes.io/hostname"] == only.name
    assert batch.static_volumes[0].storage_class == "local"


def test_names_are_replaced_consistently() -> None:
    redacted = redact(secret_snapshot())
    batch, (record,), state = redacted.batch, redacted.records, redacted.term_state
    first = batch.pods[0]

    assert first.gang == batch.gangs[0].id == record.gang == state.holds[0].gang == state.nominations[0].group
    assert record.seats[0].uid == first.uid == record.ranks[0][0] == state.holds[0].seats[0].uid
    assert record.seats[0].node == batch.nodes[0].name == batch.trees[0].leaves[0][0]
    assert batch.static_claims[0].id == f"{first.namespace}/{first.claims[0]}" == batch.static_volumes[0].claim
    assert batch.selectors[0].labels.matches(batch.label_sets[0].labels)
    assert record.timed_out_declaration == declaration(batch.gangs[0])
    assert [pod.name.rpartition("-")[2] for pod in batch.pods] == ["0", "1", "2"]
    claim = msgspec.json.decode(batch.device_objects[0].content, type=Claim)
    assert batch.device_objects[0].name == f"{claim.namespace}/{claim.name}"
    assert claim.reserved_for == (first.uid,)


def test_ids_of_groups_are_those_of_their_gangs_or_composites() -> None:
    snapshot = secret_snapshot()
    gang_id = snapshot.batch.gangs[0].id
    paused = (PausedGroup(f"group/{gang_id}", 5.0, 1), PausedGroup("group/acme/falcon", 5.0, 1))
    state = TermState(queue=QueueTermState(paused))
    redacted = redact(replace(snapshot, term_state=state))
    first, composite = redacted.term_state.queue.paused
    namespace, name = redacted.batch.gangs[0].namespace, redacted.batch.gangs[0].name

    assert first.group == f"group/{redacted.batch.gangs[0].id}"
    assert composite.group == f"group/{namespace}/{name}"


def test_devices_keep_their_driver_and_names() -> None:
    allocated = DeviceId("gpu.example.com", "poolomega", "gpu-0")
    snapshot = secret_snapshot()
    redaction = Redaction(snapshot)

    new = redaction.of(allocated)
    assert (new.driver, new.device) == (allocated.driver, allocated.device)
    assert new.pool != allocated.pool


@pytest.mark.parametrize("seed", range(60))
async def test_what_if_answers_the_same(seed: int) -> None:
    stream, other = (ClusterStream(VirtualCluster()) for _ in range(2))
    cluster = RandomCluster(seed)
    leader = await cluster.leader(stream, FirstFit(stream), 0, lambda _now, _happening: None)
    question, present = cluster.question(leader.now), leader.present(cluster.settings)
    redaction = Redaction(present, question)
    forecaster = Forecaster(other, FirstFit(other))

    async def asked(snapshot: Snapshot, added: Batch) -> Any:
        return await forecaster.ask(snapshot, Question(added), horizon_seconds=7 * 86_400.0, limit_seconds=60)

    plain = await asked(present, question)
    redacted = await asked(redaction.of_snapshot(present), redaction.of(question))

    assert (redacted.verdict, redacted.after_seconds) == (plain.verdict, plain.after_seconds)
    assert redacted.nodes == {redaction.of(uid): redaction.of(name) for uid, name in plain.nodes.items()}
    assert redacted.ranks == {redaction.of(uid): rank for uid, rank in plain.ranks.items()}
    assert set(redacted.victims) == {redaction.gang(id_) for id_ in plain.victims}
