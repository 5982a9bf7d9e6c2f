"""Objects of resource.k8s.io/v1 become facts, and malformed ones are quoted."""

from typing import Any

import pytest

from muster.devices.decoding import BadDeviceObject, decode_claim, decode_class, decode_slice
from muster.devices.facts import (
    Allocation,
    Alternative,
    Claim,
    Constraint,
    CounterSet,
    Device,
    DeviceClass,
    DeviceId,
    DeviceResult,
    DeviceTaint,
    DeviceToleration,
    Request,
    Slice,
    Unsupported,
    Version,
)
from muster.gangs.facts import NodeOperator, NodeRequirement, NodeSelectorTerm, TaintEffect, TolerationOperator

DRIVER = "gpu.example.com"
JSON = dict[str, Any]


def slice_object(*devices: JSON, **spec: object) -> JSON:
    pool = {"name": "n1", "generation": 3, "resourceSliceCount": 2}
    return {
        "metadata": {"name": "s", "labels": {"future": "x"}},
        "spec": {"driver": DRIVER, "pool": pool, "nodeName": "n1", "devices": list(devices), **spec},
    }


def claim_object(*requests: JSON, **devices: object) -> JSON:
    meta = {"namespace": "team", "name": "c", "uid": "u", "ownerReferences": [{"uid": "p", "controller": True}]}
    return {"metadata": meta, "spec": {"devices": {"requests": list(requests), **devices}}}


def test_a_slice_with_everything() -> None:
    device = {
        "name": "gpu-0",
        "attributes": {
            "model": {"string": "a"},
            "index": {"int": 0},
            "ecc": {"bool": True},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0"},
            "driverVersion": {"version": "1.2.3"},
            "zones": {"strings": ["x"]},
        },
        "capacity": {"memory": {"value": "1Gi"}, "lanes": {"value": 2}},
        "consumesCounters": [{"counterSet": "set", "counters": {"slices": {"value": "1"}}}],
        "taints": [{"key": "broken", "effect": "NoExecute"}, {"key": "note", "value": "v", "effect": "None"}],
        "unknownField": [1],
    }
    assert decode_slice(slice_object(device)) == Slice(
        name="s",
        driver=DRIVER,
        pool="n1",
        generation=3,
        count=2,
        node_name="n1",
        devices=(
            Device(
                name="gpu-0",
                driver=DRIVER,
                attributes={
                    f"{DRIVER}/model": "a",
                    f"{DRIVER}/index": 0,
                    f"{DRIVER}/ecc": True,
                    f"{DRIVER}/driverVersion": Version("1.2.3"),
                    "resource.kubernetes.io/pcieRoot": "pci0",
                },
                capacity={f"{DRIVER}/memory": 2**30 * 10**9, f"{DRIVER}/lanes": 2 * 10**9},
                consumes=(CounterSet("set", (("slices", 10**9),)),),
                taints=(
                    DeviceTaint("broken", "", TaintEffect.NO_EXECUTE),
                    DeviceTaint("note", "v", TaintEffect.NONE),
                ),
            ),
        ),
    )


def test_a_qualified_attribute_takes_precedence() -> None:
    device = {"name": "d", "attributes": {f"{DRIVER}/model": {"string": "long"}, "model": {"string": "short"}}}
    assert decode_slice(slice_object(device)).devices[0].attributes == {f"{DRIVER}/model": "long"}


def test_node_selection_of_devices() -> None:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
    devices: list[JSON] = [
        {"name": "a", "nodeSelector": selector},
        {"name": "b", "allNodes": True},
        {"name": "c", "nodeName": "n"},
    ]
    found = decode_slice(slice_object(*devices, nodeName=None, perDeviceNodeSelection=True))
    assert found.per_device
    assert not found.node_name
    assert found.devices[0].node_selector == (NodeSelectorTerm((NodeRequirement("zone", NodeOperator.IN, ("a",)),)),)
    assert found.devices[1].all_nodes
    assert found.devices[2].node_name == "n"


def test_shared_counters() -> None:
    found = decode_slice(
        slice_object(sharedCounters=[{"name": "set", "counters": {"b": {"value": "2"}, "a": {"value": "1"}}}])
    )
    assert found.shared == (CounterSet("set", (("a", 10**9), ("b", 2 * 10**9))),)


@pytest.mark.parametrize(
    ("fields", "feature"),
    [
        ({"bindingConditions": ["ready"]}, Unsupported.BINDING_CONDITIONS),
        ({"allowMultipleAllocations": True}, Unsupported.CONSUMABLE_CAPACITY),
        ({"nodeAllocatableResources": {"cpu": {}}}, Unsupported.NODE_ALLOCATABLE_RESOURCES),
        ({"consumesCounters": [{"counterSet": "s", "compatibilityGroups": ["g"]}]}, Unsupported.COMPATIBILITY_GROUPS),
        ({"bindingConditions": []}, None),
    ],
)
def test_unsupported_devices_are_named(fields: JSON, feature: Unsupported | None) -> None:
    assert decode_slice(slice_object({"name": "d", **fields})).devices[0].unsupported is feature


def test_a_class() -> None:
    fields = {
        "metadata": {"name": "gpu", "creationTimestamp": "1970-01-01T00:01:00Z"},
        "spec": {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "example.com/gpu"},
    }
    assert decode_class(fields) == DeviceClass("gpu", ("true",), "example.com/gpu", 60)
    fields["spec"] = {"selectors": [{"rego": {}}]}
    assert decode_class(fields).unsupported is Unsupported.SELECTOR_TYPE


def test_a_claim_with_everything() -> None:
    toleration = {"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    exactly = {"deviceClassName": "gpu", "count": 2, "selectors": [{"cel": {"expression": "x"}}]}
    found = decode_claim(
        claim_object(
            {"name": "one", "exactly": exactly},
            {"name": "all", "exactly": {"deviceClassName": "gpu", "allocationMode": "All", "adminAccess": True}},
            {
                "name": "any",
                "firstAvailable": [
                    {"name": "big", "deviceClassName": "gpu", "tolerations": [toleration]},
                    {"name": "small", "deviceClassName": "mig", "allocationMode": "ExactCount", "count": 3},
                ],
            },
            constraints=[
                {"matchAttribute": f"{DRIVER}/root", "requests": ["one", "any/big"]},
                {"distinctAttribute": f"{DRIVER}/model"},
            ],
        )
    )
    tolerations = (DeviceToleration("broken", TolerationOperator.EXISTS, "", TaintEffect.NO_EXECUTE, 5),)
    assert found == Claim(
        "team",
        "c",
        "u",
        requests=(
            Request("one", (Alternative("gpu", selectors=("x",), count=2),)),
            Request("all", (Alternative("gpu", count=0, admin_access=True),)),
            Request("any", (Alternative("gpu", "big", tolerations=tolerations), Alternative("mig", "small", count=3))),
        ),
        constraints=(
            Constraint(f"{DRIVER}/root", False, ("one", "any/big")),
            Constraint(f"{DRIVER}/model", True),
        ),
        owner="p",
    )
    assert not found.unsupported


def test_the_allocation_of_a_claim() -> None:
    fields = claim_object({"name": "r", "exactly": {"deviceClassName": "gpu"}})
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "d", "adminAccess": True}
    fields["status"] = {
        "allocation": {"devices": {"results": [result], "config": []}, "nodeSelector": {"nodeSelectorTerms": [term]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}],
    }
    found = decode_claim(fields)
    assert found.allocation == Allocation(
        (DeviceResult("r", DeviceId(DRIVER, "n1", "d"), True),),
        (NodeSelectorTerm(fields=(NodeRequirement("metadata.name", NodeOperator.IN, ("n1",)),)),),
    )
    assert found.reserved_for == ("1",)


@pytest.mark.parametrize(
    ("true", "unmet"),
    [
        ([], f'the binding condition "attached" of device {DRIVER}/n1/d is not true'),
        (["attached"], f'the binding condition "ready" of device {DRIVER}/n1/d is not true'),
        (["attached", "ready"], ""),
        (["attached", "broken"], f'the binding failure condition "broken" of device {DRIVER}/n1/d is true'),
    ],
)
def test_binding_conditions_of_an_allocation_that_are_not_met(true: list[str], unmet: str) -> None:
    fields = claim_object({"name": "r", "exactly": {"deviceClassName": "gpu"}})
    device = {"driver": DRIVER, "pool": "n1", "device": "d", "shareID": "s"}
    conditions = {"bindingConditions": ["attached", "ready"], "bindingFailureConditions": ["broken"]}
    other = {
        **device,
        "shareID": "t",
        "conditions": [{"type": each, "status": "True"} for each in ("attached", "ready")],
    }
    reported = [{"type": each, "status": "True"} for each in true] + [{"type": "ready", "status": "Unknown"}]
    fields["status"] = {
        "allocation": {"devices": {"results": [{"request": "r", **device, **conditions}]}},
        "devices": [other, {**device, "conditions": reported}],
    }
    assert decode_claim(fields).unmet == unmet


@pytest.mark.parametrize(
    ("request_fields", "reason"),
    [
        ({"exactly": {"deviceClassName": "g", "capacity": {"requests": {}}}}, "request r: consumable capacity"),
        ({"exactly": {"deviceClassName": "g", "derivedAttributes": [{}]}}, "request r: derived attributes"),
        ({"exactly": {"deviceClassName": "g", "allocationMode": "Half"}}, "request r: an allocation mode other"),
        ({"firstAvailable": [{"name": "s", "deviceClassName": "g", "capacity": {}}]}, "request r/s: consumable"),
        ({"future": {}}, "request r: a request without exactly and firstAvailable"),
    ],
)
def test_unsupported_requests_are_named(request_fields: JSON, reason: str) -> None:
    assert decode_claim(claim_object({"name": "r", **request_fields})).unsupported.startswith(reason)


def test_an_unsupported_constraint_is_named() -> None:
    found = decode_claim(claim_object(constraints=[{"future": 1}]))
    assert found.unsupported == "constraints: a constraint other than matchAttribute and distinctAttribute"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"spec": {"driver": 5}}, 'ResourceSlice "": spec.driver is "5": Expected `str`, got `int`'),
        ([], 'ResourceSlice "": ResourceSlice is a list of 0: Expected `object`, got `array`'),
        (
            slice_object({"name": "d", "capacity": {"m": {"value": "1 GB"}}}),
            'ResourceSlice "s": "1 GB" is not a quantity',
        ),
        (slice_object({"name": "d", "taints": "x"}), 'spec.devices[0].taints is "x"'),
        (slice_object(*[{"name": f"d{i}"} for i in range(129)]), "spec.devices is a list of 129"),
        (
            slice_object(nodeSelector={"nodeSelectorTerms": [{"matchFields": [{"key": "k", "operator": "Is"}]}]}),
            'node selector operator "Is" is unknown',
        ),
    ],
)
def test_malformed_slices_are_quoted(fields: object, message: str) -> None:
    with pytest.raises(BadDeviceObject) as error:
        decode_slice(fields)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([{"name": f"r{i}"} for i in range(33)], "spec.devices.requests is a list of 33"),
        ([{"name": "r", "exactly": {"deviceClassName": "g", "count": "2"}}], 'exactly.count is "2"'),
        (
            [{"name": "r", "exactly": {"deviceClassName": "g", "tolerations": [{"operator": "Maybe"}]}}],
            'ResourceClaim "team/c": toleration operator "Maybe" is unknown; known are Equal, Exists',
        ),
        (
            [{"name": "r", "exactly": {"deviceClassName": "g", "selectors": [{"cel": {"expression": "x" * 10241}}]}}],
            "selectors[0].cel.expression is",
        ),
    ],
)
def test_malformed_claims_are_quoted(requests: list[JSON], message: str) -> None:
    with pytest.raises(BadDeviceObject) as error:
        decode_claim(claim_object(*requests))
    assert message in str(error.value)
