"""What the conditions of CompositePodGroups follow from, in whatever order changes arrive."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from muster.kube.object_changes import Removed
from muster.kube.objects import Pod, PodGroup, decode_pod, decode_pod_group
from muster.lifecycle.composite_groups.cache import CompositeCache
from muster.lifecycle.composite_groups.condition import INVALID, Child, Standing, next_standing

KEY = ("ml", "server")


def composite(minimum: int = 1, *, name: str = "server", uid: str = "", parent: str = "") -> PodGroup:
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minGroupCount": minimum}}}
    spec |= {"parentCompositePodGroupName": parent} if parent else {}
    return decoded("scheduling.k8s.io/v1alpha3", name, uid, spec)


def group(name: str = "a", *, uid: str = "", scheduled: bool = False, parent: str = "server") -> PodGroup:
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    spec |= {"parentCompositePodGroupName": parent} if parent else {}
    conditions = [{"type": "PodGroupInitiallyScheduled", "status": "True" if scheduled else "False"}]
    return decoded("scheduling.k8s.io/v1beta1", name, uid, spec, {"conditions": conditions})


def decoded(version: str, name: str, uid: str, spec: Any, status: Any = None) -> PodGroup:
    metadata = {"name": name, "namespace": "ml", "uid": uid or f"uid-{name}", "resourceVersion": "1"}
    return decode_pod_group(
        msgspec.json.encode({"apiVersion": version, "metadata": metadata, "spec": spec, "status": status or {}})
    )


def pod(of: str = "a", scheduler: str = "muster") -> Pod:
    metadata = {"name": f"{of}-0", "namespace": "ml", "uid": f"uid-pod-{of}", "resourceVersion": "1"}
    spec = {"schedulerName": scheduler, "schedulingGroup": {"podGroupName": of}}
    return decode_pod(msgspec.json.encode({"metadata": metadata, "spec": spec}))


def cache(*items: PodGroup | Pod) -> CompositeCache:
    made = CompositeCache(["muster"])
    for item in items:
        update(made, item)
    return made


def update(to: CompositeCache, item: PodGroup | Pod) -> list[tuple[str, str]]:
    if isinstance(item, Pod):
        return to.update_pod(item)
    return to.update_composite(item) if item.api_version.endswith("v1alpha3") else to.update_group(item)


def test_each_change_concerns_the_composites_above_and_below() -> None:
    made = cache(composite(parent="root"), group())
    assert set(update(made, composite(name="root"))) == {("ml", "root"), KEY}
    assert set(update(made, pod())) == {("ml", "root"), KEY}
    assert update(made, pod()) == []
    assert set(update(made, group(scheduled=True))) == {KEY}


def test_only_those_with_a_pod_of_ours_are_ours() -> None:
    made = cache(composite(), group(), pod(scheduler="other"))
    assert not made.is_ours(KEY)
    update(made, pod())
    assert made.is_ours(KEY)
    made.update_pod(Removed("uid-pod-a"))
    assert not made.is_ours(KEY)


def test_a_group_that_was_created_again_is_not_that_which_is_removed_late() -> None:
    made = cache(composite(), group(scheduled=True))
    assert made.next_standing(KEY).holds
    update(made, group(uid="second"))
    assert not made.next_standing(KEY).holds
    update(made, group(uid="second", scheduled=True))
    made.update_group(Removed("uid-a"))
    assert made.next_standing(KEY).holds


def test_a_composite_that_was_created_again_is_not_that_which_is_removed_late() -> None:
    made = cache(composite(), group())
    update(made, composite(2, uid="second"))
    made.update_composite(Removed("uid-server"))
    assert "needs 2 groups, of which 1 exist" in made.next_standing(KEY).message


def test_a_group_that_moves_is_no_child_of_its_former_parent() -> None:
    made = cache(composite(), composite(name="other"), group(scheduled=True))
    assert set(update(made, group(uid="moved", parent="other", scheduled=True))) == {KEY, ("ml", "other")}
    assert not made.next_standing(KEY).holds
    assert made.next_standing(("ml", "other")).holds


def test_nothing_is_kept_of_what_is_gone() -> None:
    made = cache(composite(parent="root"), composite(name="root"), group(), group("b", parent=""), pod(), pod("b"))
    for uid in ("uid-pod-a", "uid-pod-b"):
        made.update_pod(Removed(uid))
    for uid in ("uid-a", "uid-b"):
        made.update_group(Removed(uid))
    for uid in ("uid-root", "uid-server"):
        made.update_composite(Removed(uid))
    assert len(made) == 0


def test_a_cycle_is_invalid_and_costs_no_endless_search() -> None:
    made = cache(composite(parent="other"), composite(name="other", parent="server"), group(), pod())
    assert made.next_standing(KEY).reason == INVALID
    assert made.is_ours(("ml", "other"))


def test_no_more_children_are_read_than_decide() -> None:
    read = []

    def children() -> Iterator[Child]:
        for number in range(50):
            read.append(number)
            yield Child(f"PodGroup {number}", Standing(holds=True))

    assert next_standing(None, 2, children()).holds
    assert read == [0, 1]


def test_i12_pod_groups_below_are_not_read_for_a_change_above_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cache(composite(name="root"), composite(parent="root"), *(group(f"g{number}") for number in range(500)))
    monkeypatch.setattr(made._trees, "children", None)
    assert set(update(made, composite(name="root"))) == {("ml", "root"), KEY}
    update(made, composite(parent=""))
    assert set(update(made, composite(name="root"))) == {("ml", "root")}
