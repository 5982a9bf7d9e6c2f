"""Volumes of gangs are chosen with the permit, durably, and never for two of them (I3)."""

import pytest
from msgspec.structs import replace

from builders.core.actions import until
from builders.core.objects import pod_class
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Bind, Persist
from muster.coordinator.records import decode, encode
from muster.gangs.counted_resources import static_volumes, storage_capacity
from muster.gangs.facts import Amounts, PodClass, PodFacts, StaticClaim, StaticVolume

RWO = ("ReadWriteOnce",)
DISKS = static_volumes("local", "Filesystem", RWO[0], 1)


def wanting() -> PodClass:
    plain = pod_class(1)
    requests: Amounts = tuple(sorted((*plain.requests, (DISKS, 1))))
    return replace(plain, id="with-disk", requests=requests)


def cluster(volumes: int, *names: str, size: int = 2) -> tuple[Scenario, dict[str, list[PodFacts]]]:
    """One node with volumes that it alone can use, and gangs that need one for each member."""
    scenario = Scenario({"n": 8}, start=False)
    there = scenario.cluster
    there.nodes["n"] = replace(
        there.nodes["n"], allocatable=tuple(sorted((*there.nodes["n"].allocatable, (DISKS, volumes))))
    )
    there.classes["with-disk"] = wanting()
    scenario.start()
    members: dict[str, list[PodFacts]] = {}
    for name in names:
        built = gang(name).of(size)
        members[name] = [replace(pod, class_id="with-disk", claims=(f"{pod.name}-disk",)) for pod in built.pods()]
        scenario.change(
            gangs=[built.gang_facts()],
            pods=members[name],
            static_volumes=[StaticVolume(f"v{number}", "local", 1, RWO) for number in range(volumes)],
            static_claims=[
                StaticClaim(f"{pod.namespace}/{claim}", "local", 1, RWO)
                for pod in members[name]
                for claim in pod.claims
            ],
        )
    return scenario, members


def chosen(bind: Bind) -> list[str]:
    return [volume for seat in bind.seats for _, volume in seat.volumes]


def test_i2_volumes_are_in_the_permit_before_the_bind() -> None:
    scenario, _ = cluster(2, "a")
    persist = until(scenario, Persist)
    assert [volume for seat in persist.puts[0].seats for _, volume in seat.volumes] == ["v0", "v1"]
    assert chosen(until(scenario, Bind)) == ["v0", "v1"]


def test_i3_two_gangs_never_have_the_same_volume() -> None:
    scenario, _ = cluster(4, "a", "b")
    binds = [until(scenario, Bind)]
    scenario.do(scenario.under_way.index(binds[0]))  # its pods are bound, and its volumes still seem to be free
    binds.append(until(scenario, Bind))
    assert sorted(volume for bind in binds for volume in chosen(bind)) == ["v0", "v1", "v2", "v3"]


def test_i5_a_volume_is_free_again_with_the_reservation() -> None:
    scenario, members = cluster(2, "a")
    until(scenario, Bind)
    taken = scenario.leader.cache.ledger.volumes.taken
    assert sorted(taken) == ["v0", "v1"]
    scenario.change(remove_pods=[pod.uid for pod in members["a"]])
    assert taken == {}


@pytest.mark.parametrize("first", ["volume", "pod"])
def test_i11_the_choice_ends_with_the_volume_or_the_pod(first: str) -> None:
    scenario, members = cluster(2, "a")
    scenario.run()
    taken = scenario.leader.cache.ledger.volumes.taken
    assert sorted(taken) == ["v0", "v1"]
    if first == "volume":
        scenario.change(remove_static_volumes=["v0", "v1"])
    else:
        scenario.change(remove_pods=[pod.uid for pod in members["a"]])
    assert taken == {}
    scenario.change(remove_static_volumes=["v0", "v1"], remove_pods=[pod.uid for pod in members["a"]])
    assert not scenario.leader.cache.ledger.volumes.has_bound_pods


def test_i6_a_new_leader_keeps_the_choice() -> None:
    scenario, _ = cluster(4, "a")
    bind = until(scenario, Bind)
    scenario.crash()
    scenario.start()
    again = until(scenario, Bind)
    assert {(seat.uid, seat.volumes) for seat in again.seats} == {(seat.uid, seat.volumes) for seat in bind.seats}
    assert sorted(scenario.leader.cache.ledger.volumes.taken) == sorted(chosen(bind))


def test_a_volume_that_is_taken_is_replaced() -> None:
    scenario, _ = cluster(4, "a")
    bind = until(scenario, Bind)
    [lost] = [seat for seat in bind.seats if [volume for _, volume in seat.volumes] == ["v0"]]
    scenario.change(remove_static_volumes=["v0"])
    scenario.bind_failures[lost.uid] = 3
    scenario.run()
    for _ in range(4):
        scenario.pass_time(5)
    assert scenario.bound("a") == 2
    assert "v0" not in scenario.leader.cache.ledger.volumes.taken


def test_a_seat_without_a_choice_is_not_bound() -> None:
    """Its claim was of another class when the permit was written."""
    scenario, members = cluster(2, "a")
    persist = until(scenario, Persist)
    assert isinstance(persist, Persist)
    extra = StaticClaim("default/late", "local", 1, RWO)
    pod = replace(members["a"][0], claims=(*members["a"][0].claims, "late"))
    scenario.change(pods=[pod], static_claims=[replace(extra, id=f"{pod.namespace}/late")])
    scenario.do(scenario.under_way.index(persist))
    assert not [effect for effect in scenario.under_way if isinstance(effect, Bind)]


def test_the_choice_survives_encoding() -> None:
    scenario, _ = cluster(2, "a")
    [record] = until(scenario, Persist).puts
    decoded, _ = decode("key", encode(record, "", 1))
    assert [seat.volumes for seat in decoded.seats] == [seat.volumes for seat in record.seats]


@pytest.mark.parametrize("volumes", [0, 1])
def test_a_gang_without_enough_volumes_holds_none(volumes: int) -> None:
    scenario, _ = cluster(volumes, "a")
    scenario.run()
    assert (scenario.bound("a"), scenario.leader.cache.ledger.volumes.taken) == (0, {})


def test_capacity_that_was_provisioned_does_not_cost_the_seat() -> None:
    """The driver publishes the rest before the claim is bound, and so before the pod's class changes."""
    scenario, _ = cluster(0)
    there, capacity = scenario.cluster, storage_capacity("lvm")
    there.classes["with-lvm"] = replace(
        wanting(), id="with-lvm", requests=tuple(sorted((*pod_class(1).requests, (capacity, 5))))
    )
    scenario.crash()
    scenario.start()
    node = there.nodes["n"]
    offers = dict(node.allocatable)
    scenario.change(nodes=[replace(node, allocatable=tuple(sorted({**offers, capacity: 10}.items())))])
    built = gang("a").of(2)
    pods = [replace(pod, class_id="with-lvm", claims=(f"{pod.name}-data",)) for pod in built.pods()]
    scenario.change(gangs=[built.gang_facts()], pods=pods)
    until(scenario, Persist)
    scenario.change(nodes=[node])
    scenario.run()
    assert scenario.bound("a") == 2
