"""The pods/binding subresource, the hottest path of this server."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.localcluster.apiserver.clock import now_text
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.metadata import MAX_ANNOTATION_BYTES
from muster.localcluster.apiserver.status import StatusError, bad_request, conflict, invalid, too_long
from muster.localcluster.apiserver.store import Object, Record


class _Target(Struct):
    kind: str | None = None
    name: str | None = None


class _Metadata(Struct):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resourceVersion: str | None = None  # noqa: N815
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Binding(Struct):
    kind: str = "Binding"
    apiVersion: str = "v1"  # noqa: N815
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    target: _Target = msgspec.field(default_factory=_Target)


_decode: Final = msgspec.json.Decoder(_Binding).decode


def bind(cluster: Cluster, namespace: str, name: str, body: bytes, *, dry_run: bool) -> None:
    """Bind the pod to the node, with the binding's labels and annotations.

    Raises StatusError 400, 404, 409, 422, 500 with the texts and reasons of kube-apiserver.
    """
    try:
        binding = _decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f'Binding in version "v1" cannot be handled as a Binding: {error}') from error
    requested = binding.metadata
    if requested.name and requested.name != name:
        raise bad_request("name in URL does not match name in Binding object")
    if requested.namespace and requested.namespace != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    node = _node_of(binding)
    record = cluster.record(_pods(cluster), namespace, name)
    _check_bindable(record, name, requested)
    bound = _bound(record.object, node, requested)
    if not dry_run:
        cluster.store.put("pods", record.key, bound)


def _pods(cluster: Cluster) -> Any:
    return cluster.kinds.find("", "v1", "pods")


def _node_of(binding: _Binding) -> str:
    if binding.target.kind not in (None, "", "Node"):
        kind = binding.target.kind
        raise StatusError(
            500, f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"', reason=""
        )
    if not binding.target.name:
        raise StatusError(500, "target.name: Required value", reason="")
    return binding.target.name


def _check_bindable(record: Record, name: str, requested: _Metadata) -> None:
    metadata, spec = record.metadata, record.object["spec"]
    uid = metadata["uid"]
    if requested.uid and requested.uid != uid:
        message = (
            f"StorageError: invalid object, Code: 4, Key: /registry/pods/{record.key}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: Precondition failed: UID in precondition: {requested.uid}, UID in object meta: {uid}"
        )
        raise conflict("pods", "", name, message)
    if "deletionTimestamp" in metadata:
        raise conflict("pods/binding", "", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise conflict("pods/binding", "", name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise conflict("pods/binding", "", name, f"pod {name} has non-empty .spec.schedulingGates")


def _bound(pod: Object, node: str, requested: _Metadata) -> Object:
    """The bound pod; shares unchanged parts with the previous version."""
    metadata = pod["metadata"].copy()
    if requested.labels:
        metadata["labels"] = {**(metadata.get("labels") or {}), **requested.labels}
    if requested.annotations:
        annotations = metadata["annotations"] = {**(metadata.get("annotations") or {}), **requested.annotations}
        if sum(len(key) + len(value) for key, value in annotations.items()) > MAX_ANNOTATION_BYTES:
            problem = too_long("metadata.annotations", MAX_ANNOTATION_BYTES)
            raise invalid("Pod", "", metadata["name"], [problem])
    status = dict(pod.get("status") or {})
    conditions = [each for each in status.get("conditions") or () if each.get("type") != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now_text()}
    status["conditions"] = [*conditions, scheduled]
    status.pop("nominatedNodeName", None)
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}, "status": status}
