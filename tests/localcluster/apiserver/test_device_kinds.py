"""Kinds of resource.k8s.io/v1: defaults, validation, the status of claims, claims in pods."""

from typing import Any

import pytest

from builders.devices.objects import (
    CLAIMS,
    CLASSES,
    DRIVER,
    SLICES,
    TEMPLATES,
    allocation,
    claim,
    request,
    reserved_for,
    slice_of,
    spec_of,
    template,
)
from builders.kube.client import PODS, STRATEGIC, TABLE, ApiClient, pod

NAMESPACE = "/api/v1/namespaces/default"


def with_claims(*claims: Any, used: Any = None) -> Any:
    body = pod("a", resourceClaims=list(claims))
    body["spec"]["containers"][0]["resources"] = {"claims": used or [{"name": claims[0]["name"]}]}
    return body


async def allocated(api: ApiClient, name: str, **status: Any) -> Any:
    """Write the allocation of an existing claim; returns the claim."""
    reply = await api.patch(f"{CLAIMS}/{name}/status", {"status": {"allocation": allocation("gpu-0"), **status}})
    assert reply.status == 200, reply.body
    return reply.body


async def test_requests_have_the_defaults_of_the_api(api: ApiClient) -> None:
    alternatives = [{"name": "large", "deviceClassName": "x", "tolerations": [{"key": "k", "value": "v"}]}]
    asked = (request(), request("all", allocationMode="All"), {"name": "any", "firstAvailable": alternatives})

    first, every, anything = (await api.created(CLAIMS, claim("a", *asked)))["spec"]["devices"]["requests"]
    of_template = (await api.created(TEMPLATES, template("t")))["spec"]["spec"]["devices"]["requests"]

    assert first["exactly"] == {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1}
    assert every["exactly"] == {"deviceClassName": DRIVER, "allocationMode": "All"}
    [large] = anything["firstAvailable"]
    assert (large["allocationMode"], large["count"]) == ("ExactCount", 1)
    assert large["tolerations"] == [{"key": "k", "value": "v", "operator": "Equal"}]
    assert of_template == [first]


@pytest.mark.parametrize(
    ("requests", "devices", "problem"),
    [
        ([request(count=-1)], {}, "requests[0].exactly.count: Invalid value: -1: must be greater than zero"),
        ([request(allocationMode="All", count=2)], {}, "must not be specified when allocationMode is 'All'"),
        ([request(allocationMode="Most")], {}, 'allocationMode: Unsupported value: "Most"'),
        ([request(device_class="")], {}, "requests[0].exactly.deviceClassName: Required value"),
        ([request("a"), request("a")], {}, 'spec.devices.requests[1]: Duplicate value: "a"'),
        ([request(f"r{i}") for i in range(33)], {}, "requests: Too many: 33: must have at most 32 items"),
        ([{"name": "a"}], {}, "exactly one of `exactly` or `firstAvailable` is required"),
        ([request(selectors=[{"cel": {"expression": "device.driver =="}}])], {}, "selectors[0].cel.expression: Inv"),
        ([request()], {"constraints": [{"requests": ["x"], "matchAttribute": "a/b"}]}, "must be the name of a request"),
        ([request()], {"constraints": [{"matchAttribute": "model"}]}, "a fully qualified name must be a domain and"),
        ([request()], {"config": [{"opaque": {"driver": "x"}}]}, "config[0].opaque.parameters: Required value"),
        ([request(tolerations=[{"operator": "In"}])], {}, 'tolerations[0].operator: Unsupported value: "In"'),
        ([request(adminAccess=True)], {}, "admin access to devices requires the `resource.kubernetes.io/admin-access"),
    ],
    ids=lambda value: value[:32] if isinstance(value, str) else "",
)
async def test_invalid_claims_are_rejected(api: ApiClient, requests: Any, devices: Any, problem: str) -> None:
    for reply in (
        await api.post(CLAIMS, claim("a", *requests, **devices)),
        await api.post(TEMPLATES, template("a", *requests, **devices)),
    ):
        assert (reply.status, reply.reason) == (422, "Invalid")
        assert problem in reply.message


async def test_values_of_wrong_types_are_rejected(api: ApiClient) -> None:
    for path, body in (
        (CLAIMS, {"metadata": {"name": "a"}, "spec": {"devices": {"requests": "gpu"}}}),
        (TEMPLATES, {"metadata": {"name": "a"}, "spec": {"spec": []}}),
        (CLASSES, {"metadata": {"name": "a"}, "spec": {"selectors": [{"cel": "true"}]}}),
        (SLICES, slice_of("a", {"name": "gpu-0", "capacity": {"memory": {"value": "a lot"}}})),
        (SLICES, slice_of("a", {"name": "gpu-0", "attributes": {"index": {"int": 2**63}}})),
        (PODS, with_claims({"name": "gpu", "resourceClaimName": 5})),
    ):
        reply = await api.post(path, body)
        assert (reply.status, reply.reason) == (400, "BadRequest"), body


async def test_admin_access_needs_a_label_of_the_namespace(api: ApiClient) -> None:
    await api.patch(NAMESPACE, {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}})
    await api.created(CLAIMS, claim("a", request(adminAccess=True)))


async def test_specs_of_claims_and_templates_are_immutable(api: ApiClient) -> None:
    await api.created(CLAIMS, claim("a"))
    await api.created(TEMPLATES, template("a"))
    for path, spec in ((CLAIMS, spec_of(request(count=2))), (TEMPLATES, {"spec": spec_of(request(count=2))})):
        changed = await api.patch(f"{path}/a", {"spec": spec})
        assert changed.status == 422 and "field is immutable" in changed.message
        assert (await api.patch(f"{path}/a", {"metadata": {"labels": {"a": "b"}}})).status == 200


async def test_an_allocation_with_its_reservation_is_one_write(api: ApiClient) -> None:
    created = await api.created(CLAIMS, {**claim("a"), "status": {"allocation": allocation("gpu-0")}})
    user = await api.created(PODS, pod("user"))
    assert created["status"] == {}, "a new claim has no status"

    body = {**created, "status": {"allocation": allocation("gpu-0"), "reservedFor": reserved_for(user)}}
    assert (await api.put(f"{CLAIMS}/a", body)).body["status"] == {}, "the status has its own path"
    body = {**(await api.get(f"{CLAIMS}/a")).body, "status": body["status"]}
    written = await api.put(f"{CLAIMS}/a/status", body)
    late = await api.put(f"{CLAIMS}/a/status", body)

    assert written.body["status"] == body["status"]
    assert (late.status, late.reason) == (409, "Conflict")
    table = await api.get(CLAIMS, Accept=TABLE)
    assert table.body["rows"][0]["cells"][:2] == ["a", "allocated,reserved"]


async def test_invalid_statuses_of_claims_are_rejected(api: ApiClient) -> None:
    user = reserved_for(await api.created(PODS, pod("user")))
    await api.created(CLAIMS, claim("free"))
    await api.created(CLAIMS, claim("a"))
    await allocated(api, "a")
    many = [{"resource": "pods", "name": f"p{i}", "uid": str(i)} for i in range(257)]
    for name, status, problem in (
        ("free", {"reservedFor": user}, "reservedFor: Forbidden: may not be specified when `allocated` is not set"),
        ("free", {"allocation": allocation("gpu-0", request="nic")}, "must be the name of a request in the claim"),
        ("free", {"allocation": allocation("GPU 0")}, 'results[0].device: Invalid value: "GPU 0"'),
        ("a", {"allocation": allocation("gpu-1")}, "status.allocation: Invalid value"),
        ("a", {"allocation": None, "reservedFor": user}, "reservedFor: Forbidden: may not be specified"),
        ("a", {"reservedFor": many}, "reservedFor: Too many: 257: must have at most 256 items"),
        ("a", {"reservedFor": [*user, *user]}, "reservedFor[1]: Duplicate value"),
        ("a", {"reservedFor": [{"resource": "pods", "name": "x"}]}, "reservedFor[0].uid: Required value"),
        ("a", {"devices": [{"driver": DRIVER, "pool": "n1", "device": "gpu-1"}]}, "must be an allocated device"),
    ):
        reply = await api.patch(f"{CLAIMS}/{name}/status", {"status": status})
        assert (reply.status, reply.reason) == (422, "Invalid"), reply.body
        assert problem in reply.message


async def test_statuses_of_devices_end_with_their_allocation(api: ApiClient) -> None:
    await api.created(CLAIMS, claim("a"))
    devices = [{"driver": DRIVER, "pool": "n1", "device": "gpu-0", "data": {"health": "ok"}}]
    written = await allocated(api, "a", devices=devices)
    assert written["status"]["devices"] == devices

    freed = await api.patch(f"{CLAIMS}/a/status", {"status": {"allocation": None}})

    assert freed.status == 200 and not freed.body["status"].get("devices")


async def test_users_are_removed_by_a_strategic_merge_patch(api: ApiClient) -> None:
    await api.created(CLAIMS, claim("a"))
    users = [await api.created(PODS, pod(name)) for name in ("one", "two")]
    await allocated(api, "a", reservedFor=reserved_for(*users))

    removed = {"$patch": "delete", "uid": users[0]["metadata"]["uid"]}
    reply = await api.patch(f"{CLAIMS}/a/status", {"status": {"reservedFor": [removed]}}, STRATEGIC)

    assert reply.body["status"]["reservedFor"] == reserved_for(users[1])


async def test_device_classes_have_selectors_that_compile(api: ApiClient) -> None:
    def device_class(expression: str, **spec: Any) -> Any:
        return {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": expression}}], **spec}}

    wrong = await api.post(CLASSES, device_class("node.name == 'a'"))
    native = await api.post(CLASSES, device_class("true", extendedResourceName="cpu"))
    created = await api.created(CLASSES, device_class(f"device.driver == '{DRIVER}'", extendedResourceName="a.b/gpu"))

    assert wrong.status == 422 and "there is no variable node; the only one is device" in wrong.message
    assert native.status == 422 and "must be a valid extended resource name" in native.message
    assert created["metadata"]["generation"] == 1


async def test_slices_are_complete_and_selected_by_node_and_driver(api: ApiClient) -> None:
    device = {
        "name": "gpu-0",
        "attributes": {"model": {"string": "X"}, "driverVersion": {"version": "1.2.3"}, "index": {"int": 0}},
        "capacity": {"memory": {"value": "81920Mi"}},
        "taints": [{"key": "broken", "effect": "NoSchedule"}],
    }
    created = await api.created(SLICES, slice_of("a", device))
    await api.created(SLICES, slice_of("b", node="n2"))

    [stored] = created["spec"]["devices"]
    assert stored["capacity"]["memory"]["value"] == "80Gi"
    assert stored["taints"][0]["timeAdded"]
    assert await api.names(f"{SLICES}?fieldSelector=spec.nodeName=n2") == ["b"]
    assert await api.names(f"{SLICES}?fieldSelector=spec.driver=other") == []
    moved = await api.patch(f"{SLICES}/a", {"spec": {"nodeName": "n2"}})
    assert moved.status == 422 and "spec.nodeName: Invalid value" in moved.message
    renewed = await api.patch(f"{SLICES}/a", {"spec": {"pool": {"generation": 2}}})
    assert (renewed.status, renewed.body["metadata"]["generation"]) == (200, 2)


@pytest.mark.parametrize(
    ("devices", "spec", "problem"),
    [
        ([], {"pool": {"name": "n1"}}, "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero"),
        ([], {"nodeName": None}, "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is"),
        ([], {"allNodes": True}, "is required, but multiple fields are set"),
        ([{"name": "a"}], {"perDeviceNodeSelection": True, "nodeName": None}, "devices[0]: Required value"),
        ([{"name": "a"}, {"name": "a"}], {}, 'spec.devices[1]: Duplicate value: "a"'),
        ([{"name": f"d{i}"} for i in range(129)], {}, "spec.devices: Too many: 129: must have at most 128 items"),
        (
            [{"name": f"d{i}", "taints": [{"key": "k", "effect": "None"}]} for i in range(65)],
            {},
            "spec.devices: Too many: 65: must have at most 64 items",
        ),
        ([{"name": "a", "attributes": {"x": {}}}], {}, 'attributes[x]: Invalid value: "": exactly one value must be'),
        ([{"name": "a", "attributes": {"x": {"version": "1.2"}}}], {}, "must be a string compatible with semver.org"),
        ([{"name": "a", "attributes": {"x": {"string": "y" * 65}}}], {}, "string: Too long: may not be more than 64"),
        ([{"name": "a", "attributes": {"x-y": {"int": 1}}}], {}, "a valid C identifier must start with"),
        (
            [{"name": "a", "attributes": {f"x{i}": {"int": 1} for i in range(33)}}],
            {},
            "the total number of attributes and capacities must not exceed 32",
        ),
        ([{"name": "a", "consumesCounters": [{"counterSet": "c"}]}], {}, "consumesCounters[0].counters: Required"),
        (
            [],
            {"sharedCounters": [{"name": "c", "counters": {"x": {"value": 1}}}]},
            "only one of `sharedCounters` or `devices` is allowed",
        ),
    ],
    ids=lambda value: value[:32] if isinstance(value, str) else "",
)
async def test_invalid_slices_are_rejected(api: ApiClient, devices: Any, spec: Any, problem: str) -> None:
    reply = await api.post(SLICES, slice_of("a", *devices, **spec))
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert problem in reply.message


async def test_claims_of_pods_are_validated_and_kept(api: ApiClient) -> None:
    used = [{"name": "gpu", "request": "gpu"}]
    created = await api.created(PODS, with_claims({"name": "gpu", "resourceClaimName": "a"}, used=used))
    assert created["spec"]["containers"][0]["resources"]["claims"] == used
    statuses = [{"name": "gpu", "resourceClaimName": "a-gpu-x"}]
    await api.patch(f"{PODS}/a/status", {"status": {"resourceClaimStatuses": statuses}}, STRATEGIC)
    await api.patch(f"{PODS}/a/status", {"status": {"phase": "Running"}}, STRATEGIC)
    assert (await api.get(f"{PODS}/a")).body["status"]["resourceClaimStatuses"] == statuses


@pytest.mark.parametrize(
    ("claims", "used", "problem"),
    [
        ([{"name": "gpu"}], None, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
        ([{"name": "gpu", "resourceClaimName": "a", "resourceClaimTemplateName": "b"}], None, "at most one of"),
        ([{"name": "gpu", "resourceClaimName": "a"}] * 2, None, 'resourceClaims[1].name: Duplicate value: "gpu"'),
        ([{"name": "gpu", "resourceClaimName": "a"}], [{"name": "nic"}], 'claims[0].name: Not found: "nic"'),
        ([{"name": "gpu", "resourceClaimName": "a"}], [{"name": "gpu"}] * 2, "claims[1]: Duplicate value"),
    ],
    ids=["no source", "two sources", "duplicate", "unknown", "used twice"],
)
async def test_invalid_claims_of_pods_are_rejected(api: ApiClient, claims: Any, used: Any, problem: str) -> None:
    reply = await api.post(PODS, with_claims(*claims, used=used))
    assert reply.status == 422 and problem in reply.message


async def test_unknown_fields_are_rejected_in_strict_mode(api: ApiClient) -> None:
    slice_with_size = slice_of("a", {"name": "gpu-0", "size": 1})
    for path, body, field in (
        (CLAIMS, claim("a", request(amount=2)), "spec.devices.requests[0].exactly.amount"),
        (TEMPLATES, template("a", request(amount=2)), "spec.spec.devices.requests[0].exactly.amount"),
        (CLASSES, {"metadata": {"name": "a"}, "spec": {"selector": []}}, "spec.selector"),
        (SLICES, slice_with_size, "spec.devices[0].size"),
    ):
        reply = await api.post(f"{path}?fieldValidation=Strict", body)
        assert reply.status == 400 and f'unknown field "{field}"' in reply.message
