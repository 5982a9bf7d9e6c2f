"""Kubernetes objects: only the relevant fields, decoded as little as possible.

Fields that determine a pod's class stay raw JSON: most pods are created from few templates, so results are computed
once per template (see pod_class). A pod or node with fields of wrong types is decoded too: its readable fields are
kept, and `problem` describes the others.
"""

from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field
from msgspec.structs import replace

from muster.gangs.quoting import quoted
from muster.kube.json_repair import repaired

NOTHING: Final = Raw(b"")
"""An absent raw field."""

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding untrusted JSON. Raw fields are validated only when they are decoded themselves."""


T = TypeVar("T")

MAX_LABELS: Final = 100
"""Labels of a pod; every service that matches selectors keeps them, 200 bytes each if no other pod has them."""
_MAX_REVISION_DIGITS: Final = 18  # below 2^63, the range of revisions in etcd and in protobuf

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
"""Range of int32 in the API and in protobuf."""


class BadObject(ValueError):
    """Bytes that are not a Kubernetes object."""


class BadResourceVersion(ValueError):
    """A resourceVersion that is not a decimal integer of int64, so that revisions cannot be compared."""


class OwnerReference(Struct, rename="camel", frozen=True, gc=False):
    """metadata.ownerReferences[]."""

    uid: str = ""
    controller: bool | None = None
    api_version: str = ""
    kind: str = ""
    name: str = ""


class ObjectMeta(Struct, rename="camel", frozen=True, gc=False):
    """metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None

    @property
    def controller(self) -> str:
        """Uid of the controller, which recreates the object; empty: none."""
        return next((owner.uid for owner in self.owner_references or () if owner.controller), "")

    @property
    def controlling(self) -> OwnerReference | None:
        """Reference to the controller, which recreates the object."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)

    @property
    def revision(self) -> int:
        """The resourceVersion as an integer. Raises BadResourceVersion."""
        version = self.resource_version
        if version.isdecimal() and version.isascii() and len(version) <= _MAX_REVISION_DIGITS:
            return int(version)
        raise BadResourceVersion(
            f"{self.namespace}/{self.name} has resourceVersion {quoted(version)}, which is not a decimal integer below "
            "10^18: this API server's revisions cannot be compared"
        )


class Container(Struct, rename="camel", frozen=True, gc=False):
    """A container or init container of a pod's spec."""

    name: str = ""
    resources: Raw = NOTHING
    restart_policy: str | None = None
    ports: Raw = NOTHING


class SchedulingGate(Struct, rename="camel", frozen=True, gc=False):
    """spec.schedulingGates[] of a pod."""

    name: str = ""


class PodSpec(Struct, rename="camel", frozen=True, gc=False):
    """spec of a pod."""

    node_name: str | None = None
    scheduler_name: str | None = None
    priority: Int32 | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    active_deadline_seconds: Int32 | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: Raw = NOTHING
    resources: Raw = NOTHING
    node_selector: Raw = NOTHING
    affinity: Raw = NOTHING
    tolerations: Raw = NOTHING
    topology_spread_constraints: Raw = NOTHING
    volumes: Raw = NOTHING
    resource_claims: Raw = NOTHING
    scheduling_group: Raw = NOTHING


class ContainerStatus(Struct, rename="camel", frozen=True, gc=False):
    """Resources that the kubelet allocated to a container, and those the container runs with."""

    name: str = ""
    allocated_resources: Raw = NOTHING
    resources: Raw = NOTHING


class PodStatus(Struct, rename="camel", frozen=True, gc=False):
    """status of a pod."""

    phase: str | None = None
    start_time: str | None = None
    nominated_node_name: str | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: Raw = NOTHING
    resources: Raw = NOTHING
    conditions: Raw = NOTHING
    resource_claim_statuses: Raw = NOTHING


class Pod(Struct, rename="camel", frozen=True, gc=False):
    """A pod."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)

    @property
    def problem(self) -> str:
        """The fields that could not be read; empty if all could."""
        return ""


class MalformedPod(Pod, rename="camel", frozen=True, gc=False):
    """A pod with fields of wrong types, which keep their defaults."""

    unreadable: str = ""

    @property
    def problem(self) -> str:
        return self.unreadable


class TaintSpec(Struct, rename="camel", frozen=True, gc=False):
    """spec.taints[] of a node."""

    key: str = ""
    value: str | None = None
    effect: str = ""


class NodeSpec(Struct, rename="camel", frozen=True, gc=False):
    """spec of a node."""

    unschedulable: bool | None = None
    taints: list[TaintSpec] | None = None


class Condition(Struct, rename="camel", frozen=True, gc=False):
    """A condition of a pod or node."""

    type: str = ""
    status: str = ""
    reason: str | None = None


class NodeStatus(Struct, rename="camel", frozen=True, gc=False):
    """status of a node."""

    allocatable: Raw = NOTHING
    conditions: list[Condition] | None = None


class Node(Struct, rename="camel", frozen=True, gc=False):
    """A node."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)

    @property
    def problem(self) -> str:
        """The fields that could not be read; empty if all could."""
        return ""


class MalformedNode(Node, rename="camel", frozen=True, gc=False):
    """A node with fields of wrong types, which keep their defaults."""

    unreadable: str = ""

    @property
    def problem(self) -> str:
        return self.unreadable


class PodGroup(Struct, rename="camel", frozen=True, gc=False):
    """An object of any kind that defines a gang, ConfigMaps included; the dialects read its content."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Raw = NOTHING
    data: Raw = NOTHING
    status: Raw = NOTHING


class PriorityClass(Struct, rename="camel", frozen=True, gc=False):
    """A priority class."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    value: Int32 = 0
    global_default: bool | None = None
    preemption_policy: str | None = None


class Namespace(Struct, rename="camel", frozen=True, gc=False):
    """A namespace, of which only the labels are used."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)


Encoded = bytes | bytearray | memoryview | Raw


_pod: Final = msgspec.json.Decoder(Pod)
_node: Final = msgspec.json.Decoder(Node)
_pod_group: Final = msgspec.json.Decoder(PodGroup)
_priority_class: Final = msgspec.json.Decoder(PriorityClass)
_namespace: Final = msgspec.json.Decoder(Namespace)
_fields: Final = msgspec.json.Decoder(dict[str, Raw])


def decode_pod(data: Encoded) -> Pod:
    """Decode a pod; a MalformedPod if fields have wrong types, or it has more than MAX_LABELS labels, which are not
    read then. Raises BadObject if it is not a JSON object.
    """
    try:
        return within_limits(_pod.decode(data))
    except UNREADABLE:
        known, problem = salvage(Pod, data)
        return within_limits(MalformedPod(**known, unreadable=problem))


def within_limits(pod: Pod) -> Pod:
    """The pod; a MalformedPod without its labels if there are more than MAX_LABELS."""
    count = len(pod.metadata.labels or ())
    if count <= MAX_LABELS:
        return pod
    problem = f"it has {count} labels: at most {MAX_LABELS} are supported"
    both = f"{pod.problem}; {problem}" if pod.problem else problem
    return MalformedPod(replace(pod.metadata, labels=None), pod.spec, pod.status, unreadable=both)


def decode_node(data: Encoded) -> Node:
    """Decode a node; a MalformedNode if fields have wrong types. Raises BadObject if it is not a JSON object."""
    try:
        return _node.decode(data)
    except UNREADABLE:
        known, problem = salvage(Node, data)
        return MalformedNode(**known, unreadable=problem)


def decode_pod_group(data: Encoded) -> PodGroup:
    """Decode a gang's definition; fields with wrong types keep their defaults. Raises BadObject."""
    try:
        return _pod_group.decode(data)
    except UNREADABLE:
        return PodGroup(**salvage(PodGroup, data)[0])


def decode_priority_class(data: Encoded) -> PriorityClass:
    """Decode a priority class; fields with wrong types keep their defaults. Raises BadObject."""
    try:
        return _priority_class.decode(data)
    except UNREADABLE:
        return PriorityClass(**salvage(PriorityClass, data)[0])


def decode_namespace(data: Encoded) -> Namespace:
    """Decode a namespace; fields with wrong types keep their defaults. Raises BadObject."""
    try:
        return _namespace.decode(data)
    except UNREADABLE:
        return Namespace(**salvage(Namespace, data)[0])


def _beginning(data: Encoded) -> str:
    return quoted(bytes(data)[:256].decode(errors="replace"))


def salvage(kind: type[Struct], data: Encoded) -> tuple[dict[str, Any], str]:
    """The readable fields of an object, and a description of the others. Raises BadObject.

    Values that are nested too deeply, and characters that are not UTF-8, are replaced first (see json_repair).
    """
    content = repaired(bytes(data))
    try:
        fields = _fields.decode(content)
    except UNREADABLE as error:
        raise BadObject(f"not a Kubernetes object ({error}): {_beginning(data)}") from error
    problems: list[str] = []
    known = _readable(kind, fields, "", problems)
    return known, "; ".join(problems)


def _readable(kind: type[Struct], fields: dict[str, Raw], path: str, problems: list[str]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for spec in msgspec.structs.fields(kind):
        if spec.encode_name not in fields:
            continue
        raw, where = fields[spec.encode_name], f"{path}{spec.encode_name}"
        if spec.type is Raw:
            known[spec.name] = raw
            continue
        try:
            if isinstance(spec.type, type) and issubclass(spec.type, Struct) and bytes(memoryview(raw)[:1]) == b"{":
                known[spec.name] = spec.type(**_readable(spec.type, _fields.decode(raw), where + ".", problems))
            else:
                known[spec.name] = msgspec.json.decode(raw, type=spec.type)
        except UNREADABLE as error:
            shown = quoted(bytes(raw)[:256].decode(errors="replace"))
            problems.append(f"{where} is {shown}: {error}")
    return known


def decode_field(raw: bytes, kind: type[T], name: str, problems: list[str]) -> T | None:
    """Decode a raw field; None if it is absent or null, or unreadable, which is added to the problems."""
    if raw in (b"", b"null"):
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except UNREADABLE as error:
        problems.append(f"{name} is {quoted(raw[:256].decode(errors='replace'))}: {error}")
        return None
