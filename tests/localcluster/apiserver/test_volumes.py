"""PersistentVolumeClaims, PersistentVolumes and StorageClasses: binding, provisioning, reclaiming."""

from typing import Any

from builders.kube.client import NODES, PODS, ApiClient, Reply, node, pod

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
EVENTS = "/api/v1/namespaces/default/events"
SELECTED = "volume.kubernetes.io/selected-node"


def storage_class(name: str, *, delayed: bool = True, **parameters: str) -> Any:
    return {
        "metadata": {"name": name},
        "provisioner": "simulated.muster.dev",
        "volumeBindingMode": "WaitForFirstConsumer" if delayed else "Immediate",
        "parameters": parameters,
    }


def claim(name: str, of_class: str | None = "fast", **spec: Any) -> Any:
    spec_fields = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    named = {} if of_class is None else {"storageClassName": of_class}
    return {"metadata": {"name": name}, "spec": {**spec_fields, **named, **spec}}


def volume(name: str, of_class: str = "", size: str = "1Gi", **spec: Any) -> Any:
    spec_fields = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "hostPath": {"path": "/data"}}
    return {"metadata": {"name": name}, "spec": {**spec_fields, "storageClassName": of_class, **spec}}


async def select(api: ApiClient, name: str, on_node: str) -> None:
    assert (await api.patch(f"{CLAIMS}/{name}", {"metadata": {"annotations": {SELECTED: on_node}}})).status == 200


def in_order(events: Reply) -> list[Any]:
    """Events, oldest first."""
    return sorted(events.body["items"], key=lambda event: int(event["metadata"]["resourceVersion"]))


def reasons(events: Reply) -> list[str]:
    """Reasons of the events, oldest first."""
    return [event["reason"] for event in in_order(events)]


async def bound(api: ApiClient, name: str) -> Any:
    """The claim, once it is bound."""
    reply = await api.until(f"{CLAIMS}/{name}", lambda reply: reply.body["status"]["phase"] == "Bound")
    return reply.body


async def test_a_waiting_claim_gets_a_volume_on_the_selected_node(api: ApiClient) -> None:
    labels = {"kubernetes.io/hostname": "host-1"}
    await api.created(NODES, {**node("n1"), "metadata": {"name": "n1", "labels": labels}})
    await api.created(CLASSES, storage_class("fast"))
    created = await api.created(CLAIMS, claim("data"))
    assert created["status"] == {"phase": "Pending"}
    await api.created(CLASSES, storage_class("at-once", delayed=False))
    await api.created(CLAIMS, claim("other", "at-once"))
    await bound(api, "other")
    assert "volumeName" not in (await api.get(f"{CLAIMS}/data")).body["spec"], "nobody selected a node"

    await select(api, "data", "n1")
    found = await bound(api, "data")
    assert found["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"
    its = (await api.get(f"{VOLUMES}/{found['spec']['volumeName']}")).body
    assert its["status"] == {"phase": "Bound"}
    assert its["spec"]["claimRef"]["uid"] == found["metadata"]["uid"]
    [term] = its["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["host-1"]}]


async def test_an_unusable_selection_is_reset_with_an_event(api: ApiClient) -> None:
    await api.created(CLASSES, storage_class("fast", refusedNodes="n1"))
    await api.created(CLAIMS, claim("data"))
    for where, message in (("n1", "node 'n1' has no free storage"), ("nowhere", "node 'nowhere' does not exist")):
        await select(api, "data", where)
        reply = await api.until(f"{CLAIMS}/data", lambda reply: SELECTED not in reply.body["metadata"]["annotations"])
        assert reply.body["status"]["phase"] == "Pending"
        reply = await api.until(EVENTS, lambda reply: reasons(reply)[-1:] == ["WaitForFirstConsumer"])
        refusal = in_order(reply)[-2]
        assert (refusal["type"], refusal["reason"]) == ("Warning", "ProvisioningFailed")
        assert message in refusal["message"]


async def test_a_pending_claim_has_an_event_for_each_change(api: ApiClient) -> None:
    """As in a real cluster, the controller's events follow those of the provisioner."""
    await api.created(CLASSES, storage_class("fast", refusedNodes="n1"))
    await api.created(CLAIMS, claim("data"))
    await api.until(EVENTS, lambda reply: reasons(reply) == ["WaitForFirstConsumer"])
    await select(api, "data", "n1")
    reported = ["WaitForFirstConsumer", "ExternalProvisioning", "ProvisioningFailed", "WaitForFirstConsumer"]
    await api.until(EVENTS, lambda reply: reasons(reply) == reported)


async def test_a_failing_class_keeps_the_selection(api: ApiClient) -> None:
    await api.created(NODES, node("n1"))
    await api.created(CLASSES, storage_class("fast", failure="quota is used up"))
    await api.created(CLAIMS, claim("data"))
    await select(api, "data", "n1")
    reported = await api.until(EVENTS, lambda reply: "ProvisioningFailed" in reasons(reply))
    assert "quota is used up" in in_order(reported)[-1]["message"]
    assert (await api.get(f"{CLAIMS}/data")).body["metadata"]["annotations"][SELECTED] == "n1"


async def test_the_smallest_volume_is_bound_except_for_waiting_claims(api: ApiClient) -> None:
    await api.created(CLASSES, {**storage_class("local"), "provisioner": "kubernetes.io/no-provisioner"})
    await api.created(
        CLASSES, {**storage_class("shared", delayed=False), "provisioner": "kubernetes.io/no-provisioner"}
    )
    await api.created(VOLUMES, volume("of-local", "local"))
    for name, size in (("large", "8Gi"), ("middle", "2Gi"), ("small", "512Mi")):
        await api.created(VOLUMES, volume(name, "shared", size))
    await api.created(CLAIMS, claim("waits", "local"))
    await api.created(CLAIMS, claim("data", "shared"))
    assert (await bound(api, "data"))["spec"]["volumeName"] == "middle"
    remaining = await api.until(f"{VOLUMES}/of-local", lambda reply: reply.body["status"]["phase"] == "Available")
    assert "claimRef" not in remaining.body["spec"]
    assert (await api.get(f"{CLAIMS}/waits")).body["status"]["phase"] == "Pending"


async def test_a_volume_is_deleted_or_retained_with_its_claim(api: ApiClient) -> None:
    await api.created(CLASSES, storage_class("gone", delayed=False))
    await api.created(CLASSES, {**storage_class("kept", delayed=False), "reclaimPolicy": "Retain"})
    names = {}
    for of_class in ("gone", "kept"):
        await api.created(CLAIMS, claim(of_class, of_class))
        names[of_class] = (await bound(api, of_class))["spec"]["volumeName"]
        await api.delete(f"{CLAIMS}/{of_class}")
    await api.until(f"{VOLUMES}/{names['gone']}", lambda reply: reply.status == 404)
    await api.until(f"{VOLUMES}/{names['kept']}", lambda reply: reply.body["status"]["phase"] == "Released")


async def test_the_claim_of_an_ephemeral_volume_is_deleted_with_its_pod(api: ApiClient) -> None:
    await api.created(CLASSES, storage_class("fast"))
    template = {"metadata": {"labels": {"a": "b"}}, "spec": claim("")["spec"]}
    created = await api.created(
        PODS, pod("trainer", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}])
    )
    found = (await api.until(f"{CLAIMS}/trainer-scratch", lambda reply: reply.status == 200)).body
    assert found["metadata"]["labels"] == {"a": "b"}
    assert found["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"]
    assert found["spec"]["storageClassName"] == "fast"
    await api.delete(f"{PODS}/trainer", {"gracePeriodSeconds": 0})
    await api.until_gone(f"{CLAIMS}/trainer-scratch")


async def test_claims_have_the_default_class_and_are_immutable(api: ApiClient) -> None:
    default = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    fast = storage_class("fast")
    await api.created(CLASSES, {**fast, "metadata": fast["metadata"] | default})
    created = await api.created(CLAIMS, claim("data", None))
    assert created["spec"]["storageClassName"] == "fast"
    changed = await api.patch(f"{CLAIMS}/data", {"spec": {"accessModes": ["ReadWriteMany"]}})
    assert (changed.status, changed.reason) == (422, "Invalid")
    assert "spec is immutable after creation" in changed.message


async def test_missing_fields_are_reported(api: ApiClient) -> None:
    nothing = await api.post(CLASSES, {"metadata": {"name": "fast"}})
    assert (nothing.status, nothing.message.count("provisioner")) == (422, 1)
    empty = await api.post(CLAIMS, {"metadata": {"name": "data"}, "spec": {}})
    assert "spec.accessModes: Required value" in empty.message
    assert "spec.resources[storage]: Required value" in empty.message
