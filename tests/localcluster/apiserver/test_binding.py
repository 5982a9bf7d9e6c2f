"""The pods/binding subresource."""

import asyncio
from typing import Any

import pytest

from builders.kube.client import PODS, ApiClient, pod


async def test_binding_sets_the_node_and_merges_annotations_and_labels(api: ApiClient) -> None:
    before = await api.created(PODS, pod("a", metadata={"annotations": {"kept": "1"}}))

    reply = await api.bind("a", "node-1", annotations={"muster.dev/trace": "t"}, labels={"l": "m"})

    assert reply.status == 201 and reply.body["status"] == "Success"
    bound = (await api.get(f"{PODS}/a")).body
    assert bound["spec"] == before["spec"] | {"nodeName": "node-1"}
    assert bound["metadata"]["annotations"] == {"kept": "1", "muster.dev/trace": "t"}
    assert bound["metadata"]["labels"] == {"l": "m"}
    [condition] = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


async def test_i4_of_concurrent_binds_one_succeeds(api: ApiClient) -> None:
    await api.created(PODS, pod("a"))

    replies = await asyncio.gather(*(api.bind("a", f"node-{number}") for number in range(8)))

    assert sorted(reply.status for reply in replies) == [201] + 7 * [409]
    node = (await api.get(f"{PODS}/a")).body["spec"]["nodeName"]
    refused = next(reply for reply in replies if reply.status == 409)
    assert refused.reason == "Conflict"
    assert refused.body["details"] == {"name": "a", "kind": "pods/binding"}
    assert refused.message == (
        f'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "{node}"'
    )


async def test_a_terminating_pod_is_not_bound(api: ApiClient) -> None:
    await api.created(PODS, pod("a", metadata={"finalizers": ["example.com/hold"]}))
    await api.delete(f"{PODS}/a")

    reply = await api.bind("a", "n")

    assert reply.status == 409 and "pod a is being deleted, cannot be assigned to a host" in reply.message


async def test_a_gated_pod_is_not_bound(api: ApiClient) -> None:
    await api.created(PODS, pod("a", schedulingGates=[{"name": "example.com/wait"}]))

    refused = await api.bind("a", "n")
    await api.patch(f"{PODS}/a", {"spec": {"schedulingGates": None}})

    assert refused.status == 409 and "non-empty .spec.schedulingGates" in refused.message
    assert (await api.bind("a", "n")).status == 201


@pytest.mark.parametrize(
    ("binding", "status", "words"),
    [
        ({"metadata": {"name": "a", "uid": "other"}, "target": {"name": "n"}}, 409, "UID in precondition: other"),
        (
            {"metadata": {"name": "b"}, "target": {"name": "n"}},
            400,
            "name in URL does not match name in Binding object",
        ),
        ({"metadata": {"name": "a"}, "target": {}}, 500, "target.name: Required value"),
        ({"metadata": {"name": "a"}, "target": {"kind": "Rack", "name": "n"}}, 500, "target.kind: Unsupported value"),
        ({"metadata": {"name": "a"}, "target": "n"}, 400, "cannot be handled as a Binding"),
    ],
)
async def test_invalid_bindings(api: ApiClient, binding: Any, status: int, words: str) -> None:
    await api.created(PODS, pod("a"))

    reply = await api.post(f"{PODS}/a/binding", binding)

    assert reply.status == status and words in reply.message
    assert "nodeName" not in (await api.get(f"{PODS}/a")).body["spec"]


async def test_binding_an_unknown_pod(api: ApiClient) -> None:
    reply = await api.bind("a", "n")

    assert (reply.status, reply.message) == (404, 'pods "a" not found')
