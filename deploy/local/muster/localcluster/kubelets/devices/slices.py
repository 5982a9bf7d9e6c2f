"""Publishes the ResourceSlices of simulated nodes."""

from typing import Any, Final
from urllib.parse import quote

import msgspec

from muster.kube.session import Response
from muster.localcluster.kubelets.api_calls import Calls
from muster.localcluster.kubelets.devices.cards import DRIVER, Cards, slice_specs

_SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
_JSON: Final = "application/json"

JSON = dict[str, Any]


async def publish_slices(calls: Calls, node: str, node_uid: str, cards: Cards) -> None:
    """Create the slices of a node, owned by it: the garbage collector deletes them with the node.

    Slices of a previous run remain if they are equal, else new ones with a higher generation replace them. Raises
    RuntimeError if the API server rejects the slices.
    """
    bodies = [_body(node, node_uid, index, spec) for index, spec in enumerate(slice_specs(node, cards))]
    if all([await _create(calls, node, body) for body in bodies]):
        return
    selector = quote(f"spec.nodeName={node},spec.driver={DRIVER}")
    answer = await calls.make("GET", f"{_SLICES}?fieldSelector={selector}", b"", _JSON)
    existing = msgspec.json.decode(_accepted(node, answer).body)["items"]
    generation = max((each["spec"]["pool"]["generation"] for each in existing), default=0)
    current = [_body(node, node_uid, index, spec) for index, spec in enumerate(slice_specs(node, cards, generation))]
    if sorted(map(_content, existing)) == sorted(map(_content, current)):
        return
    for each in existing:
        await calls.make("DELETE", f"{_SLICES}/{each['metadata']['name']}", b"", _JSON)
    for index, spec in enumerate(slice_specs(node, cards, generation + 1)):
        await _create(calls, node, _body(node, node_uid, index, spec))


def _body(node: str, node_uid: str, index: int, spec: JSON) -> JSON:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": True}
    metadata = {"name": f"{node}-{DRIVER}-{index}", "ownerReferences": [owner]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def _content(body: JSON) -> tuple[str, list[str], bytes]:
    """Name, owners and spec of a slice."""
    metadata = body["metadata"]
    owners = [each["uid"] for each in metadata.get("ownerReferences") or ()]
    return metadata["name"], owners, msgspec.json.encode(body["spec"], order="deterministic")


async def _create(calls: Calls, node: str, body: JSON) -> bool:
    """Create a slice. False: there is one of that name."""
    answer = await calls.make("POST", _SLICES, msgspec.json.encode(body), _JSON)
    if answer.status == 409:
        return False
    _accepted(node, answer)
    return True


def _accepted(node: str, answer: Response) -> Response:
    if answer.status >= 300:
        raise RuntimeError(f"the ResourceSlices of node {node} were rejected: {answer.body[:512].decode()}")
    return answer
