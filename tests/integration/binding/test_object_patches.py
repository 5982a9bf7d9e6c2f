"""Write patches objects that define gangs: only the object with the given uid, and only if something differs."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders.binding.service import Object, Rig
from builders.e2e.faults import Requests
from muster.binding.v1 import binding_pb2 as pb
from muster.clusterstate.v1 import clusterstate_pb2 as state_pb

CRD = Path(__file__).parents[3] / "deploy/crds/scheduling.x-k8s.io_podgroups.yaml"
READS = Requests("GET", "/configmaps/[^/]+")
PATCHES = Requests("PATCH", "/configmaps/[^/]+")


async def config_map(muster: Rig, name: str = "group-a", **data: str) -> Object:
    return await muster.kube.create("ConfigMap", {"metadata": {"name": name}, "data": data})


async def pod_group(muster: Rig, name: str = "train") -> Object:
    if not await muster.kube.is_served("PodGroup"):
        definition = yaml.safe_load(CRD.read_text())
        for version in definition["spec"]["versions"]:
            status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
            status["x-kubernetes-preserve-unknown-fields"] = True
        await muster.kube.create("CustomResourceDefinition", definition)
        await muster.kube.served("PodGroup")
    return await muster.kube.create("PodGroup", {"metadata": {"name": name}, "spec": {"minMember": 2}})


def patch_of(each: Object, plural: str, patch: Any = None, subresource: str = "", **more: Any) -> pb.ObjectPatch:
    meta = each["metadata"]
    return pb.ObjectPatch(
        object=state_pb.ObjectReference(
            api_version=each["apiVersion"],
            kind=each["kind"],
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
        ),
        plural=plural,
        subresource=subresource,
        merge_patch=b"" if patch is None else json.dumps(patch).encode(),
        **more,
    )


def of_map(each: Object, **data: str | None) -> pb.ObjectPatch:
    return patch_of(each, "configmaps", {"data": data})


def with_conditions(each: Object, *conditions: pb.ObjectCondition, patch: Any = None) -> pb.ObjectPatch:
    return patch_of(each, "podgroups", patch, "status", conditions=conditions)


def condition(type_: str, status: str = "True", reason: str = "Scheduled", **more: Any) -> pb.ObjectCondition:
    return pb.ObjectCondition(type=type_, status=status, reason=reason, **more)


async def map_now(muster: Rig, name: str = "group-a") -> Object:
    return await muster.get(f"/api/v1/namespaces/ml/configmaps/{name}")


async def group_now(muster: Rig, name: str = "train") -> Object:
    return await muster.get(f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/ml/podgroups/{name}")


async def test_fields_are_set_and_removed_and_others_kept(muster: Rig) -> None:
    each = await config_map(muster, size="8", old="1")
    response = await muster.write(objects=[of_map(each, status="Bound", old=None)])
    assert (response.written, list(response.failures)) == (1, [])
    assert (await map_now(muster))["data"] == {"size": "8", "status": "Bound"}


async def test_equal_fields_are_not_sent(muster: Rig) -> None:
    each = await config_map(muster, status="Bound")
    with muster.faults.seen(PATCHES) as patches:
        assert (await muster.write(objects=[of_map(each, status="Bound", never=None)])).written == 1
    assert patches == []


async def test_conditions_are_merged_by_type(muster: Rig) -> None:
    each = await pod_group(muster)
    first = [condition("A", "False", "Waiting", message="for nodes"), condition("B")]
    assert (
        await muster.write(objects=[with_conditions(each, *first, patch={"status": {"scheduled": 2}})])
    ).written == 1
    status = (await group_now(muster))["status"]
    assert status["scheduled"] == 2
    a, b = status["conditions"]
    assert (a["type"], a["status"], a["reason"], a["message"]) == ("A", "False", "Waiting", "for nodes")
    version = (await group_now(muster))["metadata"]["resourceVersion"]
    assert (await muster.write(objects=[with_conditions(each, *first)])).written == 1
    assert (await group_now(muster))["metadata"]["resourceVersion"] == version, "nothing differs"
    await muster.write(objects=[with_conditions(each, condition("A", "True", "Placed"))])
    after = (await group_now(muster))["status"]["conditions"]
    assert [(each["type"], each["status"]) for each in after] == [("A", "True"), ("B", "True")]
    assert after[1] == b


async def test_write_rules_of_conditions(muster: Rig) -> None:
    each = await pod_group(muster)
    final, replacing = pb.ObjectCondition.WRITE_RULE_UNLESS_TRUE, pb.ObjectCondition.WRITE_RULE_IF_PRESENT
    await muster.write(objects=[with_conditions(each, condition("Placed", write_rule=final))])
    await muster.write(
        objects=[
            with_conditions(
                each, condition("Placed", "False", "Lost", write_rule=final), condition("Gone", write_rule=replacing)
            )
        ]
    )
    status = (await group_now(muster))["status"]
    assert [(each["type"], each["status"]) for each in status["conditions"]] == [("Placed", "True")]


async def test_deleted_and_recreated_objects_are_left_alone(muster: Rig) -> None:
    gone, other = await config_map(muster, "gone", a="1"), await config_map(muster, "other", a="1")
    await muster.kube.delete("ConfigMap", "gone")
    await muster.kube.delete("ConfigMap", "other")
    await config_map(muster, "other", a="1")
    response = await muster.write(objects=[of_map(gone, a="2"), of_map(other, a="2")])
    assert (response.written, response.gone, list(response.failures)) == (0, 2, [])
    assert (await map_now(muster, "other"))["data"] == {"a": "1"}


async def test_concurrent_changes_are_kept(muster: Rig) -> None:
    each = await config_map(muster, mine="1", theirs="1")
    with muster.faults.hold(PATCHES) as held:
        call = asyncio.create_task(muster.write(objects=[of_map(each, mine="2")]))
        await held.until(1)
        await muster.kube.patch("ConfigMap", "group-a", {"data": {"theirs": "2"}})
        held.release()
        assert (await call).written == 1
    assert (await map_now(muster))["data"] == {"mine": "2", "theirs": "2"}


@pytest.mark.parametrize("status", [409, 429, 500, 503])
async def test_object_patches_are_retried(muster: Rig, status: int) -> None:
    each = await config_map(muster)
    with (
        muster.faults.refuse(PATCHES, status, times=3, headers={"Retry-After": "0"}),
        muster.faults.cut(PATCHES, times=1, carried_out=True),
        muster.faults.cut(READS, times=1),
    ):
        assert (await muster.write(objects=[of_map(each, status="Bound")])).written == 1
    assert (await map_now(muster))["data"] == {"status": "Bound"}


@pytest.mark.parametrize("status", [403, 422])
async def test_refusal_is_reported_with_the_server_message(muster: Rig, status: int) -> None:
    each = await config_map(muster)
    with muster.faults.refuse(PATCHES, status):
        response = await muster.write(objects=[of_map(each, status="Bound")])
    assert list(response.failures) == [f"ConfigMap 'ml/group-a': {status}: made to fail"]


async def test_missing_status_subresource_is_reported(muster: Rig) -> None:
    each = await config_map(muster)
    response = await muster.write(objects=[patch_of(each, "configmaps", {"status": {"a": 1}}, "status")])
    (failure,) = response.failures
    assert "ConfigMap 'ml/group-a': its kind has no subresource 'status'" in failure


@pytest.mark.parametrize(
    ("patch", "more", "message"),
    [
        pytest.param({"metadata": {"name": "x"}}, {}, "only labels and annotations are allowed", id="metadata"),
        pytest.param({"kind": "Secret"}, {}, "sets 'kind', which cannot be changed", id="kind"),
        pytest.param([1], {}, "its merge patch is not a JSON object", id="no object"),
        pytest.param({"data": {}}, {"subresource": "status"}, "sets 'data', which is not in subresource", id="status"),
        pytest.param({}, {"subresource": "scale"}, "subresource 'scale' is neither status nor empty", id="subresource"),
        pytest.param({"data": {"a": "x" * 2**20}}, {}, "the limit is 1048576", id="size"),
        pytest.param(None, {"conditions": [condition("A", "Maybe")]}, "'Maybe' is not True, False", id="condition"),
        pytest.param(None, {"conditions": [condition("A", reason="")]}, "reason '' is not valid", id="no reason"),
        pytest.param(None, {"conditions": [condition("A")] * 2}, "condition 'A' is given twice", id="twice"),
        pytest.param(
            {"status": {"conditions": []}},
            {"conditions": [condition("A")]},
            "which its field `conditions` sets too",
            id="both",
        ),
    ],
)
async def test_invalid_patches_do_not_block_others(muster: Rig, patch: Any, more: dict[str, Any], message: str) -> None:
    each = await config_map(muster, a="1")
    response = await muster.write(objects=[patch_of(each, "configmaps", patch, **more), of_map(each, a="2")])
    assert response.written == 1
    assert len(response.failures) == 1 and message in response.failures[0], response.failures
    assert (await map_now(muster))["data"] == {"a": "2"}


async def test_object_without_uid_or_kind_is_rejected(muster: Rig) -> None:
    each = await config_map(muster)
    nameless, kindless = of_map(each), of_map(each)
    nameless.object.uid = ""
    kindless.plural = "../secrets"
    response = await muster.write(objects=[nameless, kindless])
    assert ["no uid" in response.failures[0], "is not a plural and API version" in response.failures[1]] == [True, True]
