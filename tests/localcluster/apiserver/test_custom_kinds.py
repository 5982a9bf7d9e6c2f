"""CustomResourceDefinitions: serving, validation, deletion."""

import re
from typing import Any

import pytest

from builders.kube.client import CRDS, STRATEGIC, TABLE, ApiClient

GADGETS = "/apis/example.com/v1/namespaces/default/gadgets"

SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["minimum"],
            "properties": {
                "minimum": {"type": "integer", "minimum": 1, "maximum": 10},
                "mode": {"type": "string", "enum": ["Strict", "Loose"], "default": "Strict"},
                "code": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4},
                "amount": {"x-kubernetes-int-or-string": True},
                "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
                "nested": {"type": "object", "default": {}, "properties": {"depth": {"type": "integer", "default": 3}}},
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    },
}


def definition(**version: Any) -> dict[str, Any]:
    columns = [
        {"name": "Minimum", "type": "integer", "jsonPath": ".spec.minimum"},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    first = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": SCHEMA},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        **version,
    }
    return {
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Gadget", "plural": "gadgets", "shortNames": ["gd"]},
            "versions": [first],
        },
    }


def gadget(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": {"minimum": 1} | spec}


async def test_a_new_kind_is_served_at_once(api: ApiClient) -> None:
    assert (await api.get(GADGETS)).status == 404

    created = await api.created(CRDS, definition())

    assert {each["type"]: each["status"] for each in created["status"]["conditions"]}["Established"] == "True"
    assert (await api.get(GADGETS)).body["items"] == []
    groups = [group["name"] for group in (await api.get("/apis")).body["groups"]]
    resources = {each["name"]: each for each in (await api.get("/apis/example.com/v1")).body["resources"]}
    assert "example.com" in groups
    assert resources["gadgets"]["shortNames"] == ["gd"] and "gadgets/status" in resources


async def test_defaults_are_set_and_unknown_fields_pruned(api: ApiClient) -> None:
    await api.created(CRDS, definition())

    created = await api.created(GADGETS, gadget(unknown=1, free={"any": ["thing"]}, limits={"a": 1}) | {"other": 1})

    assert created["spec"] == {
        "minimum": 1,
        "mode": "Strict",
        "free": {"any": ["thing"]},
        "limits": {"a": 1},
        "nested": {"depth": 3},
    }
    assert "other" not in created and created["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"minimum": 0}, "spec.minimum: Invalid value: 0: spec.minimum in body should be greater than or equal to 1"),
        ({"minimum": 11}, "spec.minimum: Invalid value: 11: spec.minimum in body should be less than or equal to 10"),
        (
            {"minimum": "five"},
            'spec.minimum: Invalid value: "string": spec.minimum in body must be of type integer: "string"',
        ),
        ({"minimum": True}, 'must be of type integer: "boolean"'),
        ({"mode": "Strct"}, 'spec.mode: Unsupported value: "Strct": supported values: "Strict", "Loose"'),
        ({"code": "x"}, "should be at least 2 chars long"),
        ({"code": "abcde"}, "spec.code: Too long: may not be more than 4 bytes"),
        ({"code": "A1"}, "should match '^[a-z]+$'"),
        ({"amount": 1.5}, 'must be of type integer,string: "number"'),
        ({"tags": ["a", "b", "c"]}, "spec.tags: Too many: 3: must have at most 2 items"),
        ({"tags": [1]}, 'spec.tags[0] in body must be of type string: "integer"'),
        ({"limits": {"a": "b"}}, 'spec.limits.a in body must be of type integer: "string"'),
    ],
)
async def test_objects_that_violate_the_schema(api: ApiClient, spec: dict[str, Any], message: str) -> None:
    await api.created(CRDS, definition())

    reply = await api.post(GADGETS, gadget(**spec))

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert message in reply.message
    assert reply.body["details"]["group"] == "example.com"


async def test_required_fields(api: ApiClient) -> None:
    await api.created(CRDS, definition())

    reply = await api.post(GADGETS, {"metadata": {"name": "g"}, "spec": {}})

    assert reply.message == 'Gadget.example.com "g" is invalid: spec.minimum: Required value'


async def test_status_is_a_subresource_and_generation_counts_specs(api: ApiClient) -> None:
    await api.created(CRDS, definition())
    created = await api.created(GADGETS, gadget() | {"status": {"phase": "Mine"}})

    status = await api.patch(f"{GADGETS}/g/status", {"spec": {"minimum": 5}, "status": {"phase": "Up", "x": 1}})
    spec = await api.patch(f"{GADGETS}/g", {"spec": {"minimum": 2}, "status": {"phase": "Down"}})

    assert "status" not in created
    assert status.body["status"] == {"phase": "Up"} and status.body["spec"]["minimum"] == 1
    assert status.body["metadata"]["generation"] == 1
    assert spec.body["status"] == {"phase": "Up"} and spec.body["metadata"]["generation"] == 2


async def test_updates_need_a_version_and_strategic_patches_are_unsupported(api: ApiClient) -> None:
    await api.created(CRDS, definition())
    await api.created(GADGETS, gadget())

    update = await api.put(f"{GADGETS}/g", gadget(minimum=3))
    patch = await api.patch(f"{GADGETS}/g", {"spec": {"minimum": 3}}, STRATEGIC)

    assert update.status == 422 and "must be specified for an update" in update.message
    assert patch.status == 415


async def test_columns_of_a_table(api: ApiClient) -> None:
    await api.created(CRDS, definition())
    await api.created(GADGETS, gadget(minimum=4))
    await api.patch(f"{GADGETS}/g/status", {"status": {"phase": "Up"}})

    table = (await api.get(GADGETS, Accept=TABLE)).body

    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Minimum", "Phase", "Age"]
    *cells, age = table["rows"][0]["cells"]
    assert cells == ["g", 4, "Up"] and re.fullmatch(r"\d+s", age)


async def test_all_versions_serve_the_same_objects(api: ApiClient) -> None:
    two = definition()
    two["spec"]["versions"].append({**two["spec"]["versions"][0], "name": "v2", "storage": False})
    await api.created(CRDS, two)
    await api.created(GADGETS, gadget(minimum=4))
    other = GADGETS.replace("v1", "v2")

    async with api.watch(other) as events:
        read = (await api.get(f"{other}/g")).body
        changed = await api.patch(f"{other}/g", {"spec": {"minimum": 5}})
        seen = [await events.next(), await events.next()]

    assert read["apiVersion"] == changed.body["apiVersion"] == "example.com/v2"
    assert [(event["object"]["apiVersion"], event["object"]["spec"]["minimum"]) for event in seen] == [
        ("example.com/v2", 4),
        ("example.com/v2", 5),
    ]
    assert (await api.get(f"{GADGETS}/g")).body["spec"]["minimum"] == 5


async def test_deleting_a_definition_deletes_its_objects_and_ends_watches(api: ApiClient) -> None:
    await api.created(CRDS, definition())
    await api.created(GADGETS, gadget())

    async with api.watch(GADGETS) as events:
        await events.next()
        await api.delete(f"{CRDS}/gadgets.example.com")
        assert await events.take(1) == [("DELETED", "g")]
        assert await events.ended()

    assert (await api.get(GADGETS)).status == 404
    assert (await api.get("/apis/example.com/v1")).status == 404


async def test_a_recreated_definition_starts_empty_without_history(api: ApiClient) -> None:
    await api.created(CRDS, definition())
    old = (await api.created(GADGETS, gadget()))["metadata"]["resourceVersion"]
    await api.delete(f"{CRDS}/gadgets.example.com")
    await api.until_gone(f"{CRDS}/gadgets.example.com")

    await api.created(CRDS, definition())

    assert (await api.get(GADGETS)).body["items"] == []
    async with api.watch(f"{GADGETS}?resourceVersion={old}") as events:
        assert (await events.next())["object"]["code"] == 410


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"metadata": {"name": "gadgets.example.org"}}, "metadata.name"),
        ({"spec": {**definition()["spec"], "scope": "World"}}, "spec.scope"),
        ({"spec": {**definition()["spec"], "versions": []}}, "spec.versions"),
        ({"spec": definition(schema=None)["spec"]}, "spec.versions[0].schema.openAPIV3Schema"),
    ],
)
async def test_invalid_definitions(api: ApiClient, change: dict[str, Any], field: str) -> None:
    reply = await api.post(CRDS, definition() | change)

    assert reply.status == 422
    assert field in [cause["field"] for cause in reply.body["details"]["causes"]]
    assert (await api.get(GADGETS)).status == 404
