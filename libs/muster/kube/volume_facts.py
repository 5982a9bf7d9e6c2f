"""Converts claims, volumes and storage classes to facts with their requirements on nodes, and reads claims of pods."""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from muster.gangs.facts import NodeOperator, NodeRequirement, NodeSelectorTerm
from muster.gangs.quantity import BadQuantity, to_amount
from muster.gangs.quoting import quoted
from muster.kube.node_selection import volume_affinity
from muster.kube.objects import NOTHING, UNREADABLE, Encoded, ObjectMeta, salvage
from muster.kube.pod_requests import quantity_text

NodeTerms = tuple[NodeSelectorTerm, ...]
"""Terms of which one must match a node."""

_BOUND: Final = "pv.kubernetes.io/bind-completed"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_NO_PROVISIONER: Final = ("", "kubernetes.io/no-provisioner")
_MIGRATED: Final = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
}
"""CSI drivers that Kubernetes uses in place of its former plugins, by provisioner."""
_BETA_KEYS: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_TOPOLOGY_KEYS: Final = tuple(sorted((*_BETA_KEYS, *_BETA_KEYS.values())))
_ZONES_DELIMITER: Final = "__"
_ENDED: Final = ("Released", "Failed")

S = TypeVar("S", bound=Struct)


# -- objects


class Storage(Struct, frozen=True, gc=False):
    """An amount of storage."""

    storage: Raw = NOTHING

    @property
    def bytes_(self) -> int:
        """Bytes; 0 if the amount cannot be read."""
        try:
            return to_amount("storage", quantity_text(self.storage), round_up=True) if self.storage else 0
        except BadQuantity:
            return 0


class ClaimResources(Struct, frozen=True, gc=False):
    """spec.resources of a claim."""

    requests: Storage = field(default_factory=Storage)


class ClaimSpec(Struct, rename="camel", frozen=True, gc=False):
    """spec of a claim."""

    volume_name: str | None = None
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    resources: ClaimResources = field(default_factory=ClaimResources)
    selector: Raw = NOTHING


class ClaimStatus(Struct, rename="camel", frozen=True, gc=False):
    """status of a claim."""

    phase: str | None = None


class PersistentVolumeClaim(Struct, rename="camel", frozen=True, gc=False):
    """A claim for a volume."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ClaimSpec = field(default_factory=ClaimSpec)
    status: ClaimStatus = field(default_factory=ClaimStatus)


class CSISource(Struct, rename="camel", frozen=True, gc=False):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class ClaimReference(Struct, frozen=True, gc=False):
    """The claim to which a volume is bound, or for which it is reserved."""

    namespace: str = ""
    name: str = ""
    uid: str | None = None


class VolumeStatus(Struct, frozen=True, gc=False):
    """status of a volume."""

    phase: str | None = None


class VolumeSpec(Struct, rename="camel", frozen=True, gc=False):
    """spec of a volume."""

    node_affinity: Raw = NOTHING
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    capacity: Storage = field(default_factory=Storage)
    claim_ref: ClaimReference | None = None
    csi: CSISource | None = None
    aws_elastic_block_store: Raw = NOTHING
    azure_disk: Raw = NOTHING
    cinder: Raw = NOTHING
    gce_persistent_disk: Raw = NOTHING
    vsphere_volume: Raw = NOTHING

    @property
    def driver(self) -> str:
        """The CSI driver that attaches the volume, also of plugins that were migrated to one; empty: none."""
        if self.csi is not None:
            return self.csi.driver
        for source, driver in (
            (self.aws_elastic_block_store, "ebs.csi.aws.com"),
            (self.azure_disk, "disk.csi.azure.com"),
            (self.cinder, "cinder.csi.openstack.org"),
            (self.gce_persistent_disk, "pd.csi.storage.gke.io"),
            (self.vsphere_volume, "csi.vsphere.vmware.com"),
        ):
            if bytes(source) not in (b"", b"null"):
                return driver
        return ""


class PersistentVolume(Struct, rename="camel", frozen=True, gc=False):
    """A volume."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: VolumeSpec = field(default_factory=VolumeSpec)
    status: VolumeStatus = field(default_factory=VolumeStatus)


class StorageClass(Struct, rename="camel", frozen=True, gc=False):
    """A StorageClass."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    provisioner: str | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: Raw = NOTHING


def decode_claim(data: Encoded) -> PersistentVolumeClaim:
    """Decode a claim; fields with wrong types keep their defaults. Raises BadObject."""
    return _decoded(PersistentVolumeClaim, _claim, data)


def decode_volume(data: Encoded) -> PersistentVolume:
    """Decode a volume; fields with wrong types keep their defaults. Raises BadObject."""
    return _decoded(PersistentVolume, _volume, data)


def decode_storage_class(data: Encoded) -> StorageClass:
    """Decode a storage class; fields with wrong types keep their defaults. Raises BadObject."""
    return _decoded(StorageClass, _storage_class, data)


_claim: Final = msgspec.json.Decoder(PersistentVolumeClaim)
_volume: Final = msgspec.json.Decoder(PersistentVolume)
_storage_class: Final = msgspec.json.Decoder(StorageClass)


def _decoded(kind: type[S], decoder: msgspec.json.Decoder[S], data: Encoded) -> S:
    try:
        return decoder.decode(data)
    except UNREADABLE:
        return kind(**salvage(kind, data)[0])


# -- facts


class VolumeNeeds(Struct, frozen=True, gc=False):
    """Properties that a claim needs of a volume, or that a volume has; access modes are sorted."""

    size_bytes: int = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    has_selector: bool = False


class ClaimFacts(Struct, frozen=True, gc=False):
    """A claim. `volume` is its volume or planned volume; `bound`: binding is complete."""

    uid: str
    volume: str = ""
    bound: bool = False
    lost: bool = False
    deleting: bool = False
    storage_class: str = ""
    selected_node: str = ""
    one_pod_only: bool = False
    controller: str = ""
    needs: VolumeNeeds = VolumeNeeds()


class VolumeFacts(Struct, frozen=True, gc=False):
    """A volume: a node must match one term of each entry of `demands`. `driver` attaches it by the name `handle`.

    `has`: size and modes. `available`: it is usable, and bound to no claim; `reserved_for`: the claim that it is
    reserved for (namespace, name and uid, which may be missing), if any.
    """

    uid: str
    demands: tuple[NodeTerms, ...] = ()
    problem: str = ""
    driver: str = ""
    handle: str = ""
    storage_class: str = ""
    has: VolumeNeeds = VolumeNeeds()
    available: bool = False
    reserved_for: tuple[str, str, str] | None = None


class StorageFacts(Struct, frozen=True, gc=False):
    """A storage class. `waits`: WaitForFirstConsumer; `topologies`: nodes of its volumes, None: any node; `driver`: its
    provisioner.
    """

    uid: str
    waits: bool = False
    provisions: bool = False
    topologies: NodeTerms | None = None
    problem: str = ""
    driver: str = ""


class ClaimOfPod(Struct, frozen=True, gc=False):
    """A claim that a pod uses; an ephemeral claim is created for the pod, which must own it."""

    name: str
    ephemeral: bool = False


def claim_facts(claim: PersistentVolumeClaim) -> ClaimFacts:
    """The facts of a claim."""
    metadata, spec = claim.metadata, claim.spec
    annotations = metadata.annotations or {}
    phase = claim.status.phase
    return ClaimFacts(
        uid=metadata.uid,
        volume=spec.volume_name or "",
        bound=bool(spec.volume_name) and (_BOUND in annotations or phase == "Bound"),
        lost=phase == "Lost",
        deleting=metadata.deletion_timestamp is not None,
        storage_class=annotations.get(_BETA_CLASS, spec.storage_class_name or ""),
        selected_node=annotations.get(_SELECTED_NODE, ""),
        one_pod_only="ReadWriteOncePod" in (spec.access_modes or ()),
        controller=metadata.controller,
        needs=VolumeNeeds(
            max(0, spec.resources.requests.bytes_),
            tuple(sorted(set(spec.access_modes or ()))),
            spec.volume_mode or "Filesystem",
            has_selector=bytes(spec.selector) not in (b"", b"null", b"{}"),
        ),
    )


def volume_facts(volume: PersistentVolume) -> VolumeFacts:
    """The facts of a volume: its node affinity, and the zone and region in its labels."""
    problems: list[str] = []
    affinity = volume_affinity(bytes(volume.spec.node_affinity), problems)
    demands = (
        _topology_terms(volume.metadata.labels or {})
        if affinity is None
        else [affinity, *_topology_terms(volume.metadata.labels or {})]
    )
    spec, name, claim = volume.spec, volume.metadata.name, volume.spec.claim_ref
    return VolumeFacts(
        volume.metadata.uid,
        tuple(demands),
        "; ".join(problems),
        driver=spec.driver,
        handle=spec.csi.volume_handle if spec.csi is not None else name,
        storage_class=(volume.metadata.annotations or {}).get(_BETA_CLASS, spec.storage_class_name or ""),
        has=VolumeNeeds(
            max(0, spec.capacity.bytes_), tuple(sorted(set(spec.access_modes or ()))), spec.volume_mode or "Filesystem"
        ),
        available=volume.metadata.deletion_timestamp is None
        and (volume.status.phase == "Available" if claim is None else volume.status.phase not in _ENDED),
        reserved_for=None if claim is None else (claim.namespace, claim.name, claim.uid or ""),
    )


def storage_facts(storage_class: StorageClass) -> StorageFacts:
    """The facts of a storage class."""
    problems: list[str] = []
    return StorageFacts(
        storage_class.metadata.uid,
        waits=storage_class.volume_binding_mode == "WaitForFirstConsumer",
        provisions=(storage_class.provisioner or "") not in _NO_PROVISIONER,
        topologies=_topologies(bytes(storage_class.allowed_topologies), problems),
        problem="; ".join(problems),
        driver=_MIGRATED.get(storage_class.provisioner or "", storage_class.provisioner or ""),
    )


def on_node(name: str) -> NodeTerms:
    """Terms that match one node."""
    return (NodeSelectorTerm(fields=(NodeRequirement("metadata.name", NodeOperator.IN, (name,)),)),)


def _topology_terms(labels: Mapping[str, str]) -> list[NodeTerms]:
    """Terms for zone and region labels of a volume: nodes with these labels must match; values are delimited."""
    demands = []
    unlabelled = NodeSelectorTerm(tuple(NodeRequirement(key, NodeOperator.DOES_NOT_EXIST) for key in _TOPOLOGY_KEYS))
    for key in _TOPOLOGY_KEYS:
        zones = [zone.strip() for zone in labels.get(key, "").split(_ZONES_DELIMITER)]
        if not all(zones):
            continue
        values = tuple(sorted(set(zones)))
        terms = [NodeSelectorTerm((NodeRequirement(key, NodeOperator.IN, values),)), unlabelled]
        if (present := _BETA_KEYS.get(key)) is not None:
            absent = NodeRequirement(key, NodeOperator.DOES_NOT_EXIST)
            terms.append(NodeSelectorTerm((absent, NodeRequirement(present, NodeOperator.IN, values))))
        demands.append(tuple(sorted(terms, key=msgspec.json.encode)))
    return demands


class _TopologyRequirement(Struct, frozen=True):
    key: str = ""
    values: list[str] | None = None


class _TopologyTerm(Struct, frozen=True, rename="camel"):
    match_label_expressions: list[_TopologyRequirement] | None = None


def _topologies(raw: bytes, problems: list[str]) -> NodeTerms | None:
    if raw in (b"", b"null", b"[]"):
        return None
    try:
        given = msgspec.json.decode(raw, type=list[_TopologyTerm])
    except UNREADABLE as error:
        problems.append(f"allowedTopologies is {quoted(raw[:256].decode(errors='replace'))}: {error}")
        return None
    terms = {
        NodeSelectorTerm(
            tuple(
                NodeRequirement(each.key, NodeOperator.IN, tuple(sorted(set(each.values or ()))))
                for each in sorted(term.match_label_expressions or (), key=lambda each: each.key)
            )
        )
        for term in given
    }
    return tuple(sorted(terms, key=msgspec.json.encode))


# -- pods


class _ClaimSource(Struct, frozen=True, rename="camel"):
    claim_name: str = ""


class _PodVolume(Struct, frozen=True, rename="camel"):
    name: str = ""
    persistent_volume_claim: _ClaimSource | None = None
    ephemeral: Raw = NOTHING


MAX_CLAIMS: Final = 256
"""Claims that a pod may use. Nodes of each of their volumes are compared with all nodes."""


def has_claims(volumes: Raw) -> bool:
    """Whether a pod's volumes may have claims; if not, they need not be decoded."""
    if volumes is NOTHING:
        return False
    raw = bytes(volumes)
    return b'"persistentVolumeClaim"' in raw or b'"ephemeral"' in raw


def claims_of(volumes: Raw, pod_name: str, problems: list[str]) -> tuple[ClaimOfPod, ...]:
    """Claims in the raw JSON of a pod's volumes, sorted by name. Malformed volumes are added to `problems`."""
    if not has_claims(volumes):
        return ()
    raw = bytes(volumes)
    try:
        given = msgspec.json.decode(raw, type=list[_PodVolume])
    except UNREADABLE as error:
        problems.append(f"volumes is {quoted(raw[:256].decode(errors='replace'))}: {error}")
        return ()
    found: dict[str, ClaimOfPod] = {}
    for each in given:
        if each.persistent_volume_claim is not None:
            name = each.persistent_volume_claim.claim_name
            found.setdefault(name, ClaimOfPod(name))
        elif bytes(each.ephemeral) not in (b"", b"null"):
            name = f"{pod_name}-{each.name}"
            found[name] = ClaimOfPod(name, ephemeral=True)
    if len(found) > MAX_CLAIMS:
        problems.append(f"it uses {len(found)} PersistentVolumeClaims: at most {MAX_CLAIMS} are supported")
    return tuple(found[name] for name in sorted(found)[:MAX_CLAIMS])
