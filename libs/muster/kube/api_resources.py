"""Watched API resources: their paths and decoders."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from muster.dialects import native
from muster.dialects.definitions import DefinitionKind
from muster.dialects.registry import DIALECTS
from muster.gangs.facts import NODE_REVISIONS, POD_REVISIONS
from muster.kube.budget_facts import PodDisruptionBudget, decode_budget
from muster.kube.csi_facts import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    decode_csi_driver,
    decode_csi_node,
    decode_storage_capacity,
)
from muster.kube.device_objects import DeviceResource, decode_device_resource
from muster.kube.hyper_nodes import API_VERSION as HYPER_NODE_VERSION
from muster.kube.hyper_nodes import HyperNodeObject, decode_hyper_node
from muster.kube.objects import (
    Encoded,
    Namespace,
    Node,
    Pod,
    PodGroup,
    PriorityClass,
    decode_namespace,
    decode_node,
    decode_pod,
    decode_pod_group,
    decode_priority_class,
    within_limits,
)
from muster.kube.topology_config_maps import ConfigMap, decode_config_map
from muster.kube.volume_facts import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    decode_claim,
    decode_storage_class,
    decode_volume,
)
from muster.topology.sakkara import TOPOLOGY_LABEL

T = TypeVar("T")


class ApiResource(Struct, Generic[T], frozen=True):
    """An API resource. `kind` is its plural with its group, as in revisions; `path` lists it in all namespaces.

    `decode` reads as much as possible of an object that does not fit `type`. `limit` leaves out what exceeds the
    limits on input. An `optional` resource may not be served, e.g. because its CustomResourceDefinition is not
    installed. A `dispensable` one may be forbidden: Muster works without it. `label_selector` selects the relevant
    objects; empty: all. `older_paths` are paths of older API versions, for API servers that do not serve `path`.
    """

    kind: str
    path: str
    type: type[T]
    decode: Callable[[Encoded], T]
    optional: bool = False
    dispensable: bool = False
    label_selector: str = ""
    older_paths: tuple[str, ...] = ()
    limit: Callable[[T], T] | None = None

    @property
    def api_version(self) -> str:
        """The API version in its path: "v1" or "group/version"."""
        api, *parts = self.path.strip("/").split("/")
        return parts[0] if api == "api" else "/".join(parts[:2])

    @property
    def object_kind(self) -> str:
        """The kind of its objects, as in manifests."""
        return OBJECT_KINDS.get(self.kind.partition(".")[0].partition("/")[0], "")


OBJECT_KINDS: Final[Mapping[str, str]] = {
    "pods": "Pod",
    "nodes": "Node",
    "namespaces": "Namespace",
    "configmaps": "ConfigMap",
    "podgroups": "PodGroup",
    "compositepodgroups": "CompositePodGroup",
    "hypernodes": "HyperNode",
    "schedulingspecs": "SchedulingSpec",
    "workloads": "Workload",
    "queuejobs": "QueueJob",
    "resourcequotas": "ResourceQuota",
    "priorityclasses": "PriorityClass",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "persistentvolumes": "PersistentVolume",
    "storageclasses": "StorageClass",
    "csinodes": "CSINode",
    "csidrivers": "CSIDriver",
    "csistoragecapacities": "CSIStorageCapacity",
    "provisioningrequests": "ProvisioningRequest",
    "resourceslices": "ResourceSlice",
    "deviceclasses": "DeviceClass",
    "resourceclaims": "ResourceClaim",
    "devicetaintrules": "DeviceTaintRule",
}
"""Kinds by plural."""

PODS: Final = ApiResource(POD_REVISIONS, "/api/v1/pods", Pod, decode_pod, limit=within_limits)
NODES: Final = ApiResource(NODE_REVISIONS, "/api/v1/nodes", Node, decode_node)
PRIORITY_CLASSES: Final = ApiResource(
    "priorityclasses.scheduling.k8s.io",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    PriorityClass,
    decode_priority_class,
)
BUDGETS: Final = ApiResource(
    "poddisruptionbudgets.policy",
    "/apis/policy/v1/poddisruptionbudgets",
    PodDisruptionBudget,
    decode_budget,
    optional=True,
    dispensable=True,
)
NAMESPACES: Final = ApiResource(
    "namespaces", "/api/v1/namespaces", Namespace, decode_namespace, optional=True, dispensable=True
)
CLAIMS: Final = ApiResource(
    "persistentvolumeclaims",
    "/api/v1/persistentvolumeclaims",
    PersistentVolumeClaim,
    decode_claim,
    optional=True,
    dispensable=True,
)
VOLUMES: Final = ApiResource(
    "persistentvolumes",
    "/api/v1/persistentvolumes",
    PersistentVolume,
    decode_volume,
    optional=True,
    dispensable=True,
)
STORAGE_CLASSES: Final = ApiResource(
    "storageclasses.storage.k8s.io",
    "/apis/storage.k8s.io/v1/storageclasses",
    StorageClass,
    decode_storage_class,
    optional=True,
    dispensable=True,
)
CSI_NODES: Final = ApiResource(
    "csinodes.storage.k8s.io",
    "/apis/storage.k8s.io/v1/csinodes",
    CSINode,
    decode_csi_node,
    optional=True,
    dispensable=True,
)
CSI_DRIVERS: Final = ApiResource(
    "csidrivers.storage.k8s.io",
    "/apis/storage.k8s.io/v1/csidrivers",
    CSIDriver,
    decode_csi_driver,
    optional=True,
    dispensable=True,
)
STORAGE_CAPACITIES: Final = ApiResource(
    "csistoragecapacities.storage.k8s.io",
    "/apis/storage.k8s.io/v1/csistoragecapacities",
    CSIStorageCapacity,
    decode_storage_capacity,
    optional=True,
    dispensable=True,
)
RESOURCE_SLICES: Final = ApiResource(
    "resourceslices.resource.k8s.io",
    "/apis/resource.k8s.io/v1/resourceslices",
    DeviceResource,
    decode_device_resource,
    optional=True,
    dispensable=True,
)
DEVICE_CLASSES: Final = ApiResource(
    "deviceclasses.resource.k8s.io",
    "/apis/resource.k8s.io/v1/deviceclasses",
    DeviceResource,
    decode_device_resource,
    optional=True,
    dispensable=True,
)
RESOURCE_CLAIMS: Final = ApiResource(
    "resourceclaims.resource.k8s.io",
    "/apis/resource.k8s.io/v1/resourceclaims",
    DeviceResource,
    decode_device_resource,
    optional=True,
    dispensable=True,
)
DEVICE_TAINT_RULES: Final = ApiResource(
    "devicetaintrules.resource.k8s.io",
    "/apis/resource.k8s.io/v1/devicetaintrules",
    DeviceResource,
    decode_device_resource,
    optional=True,
    dispensable=True,
    older_paths=(
        "/apis/resource.k8s.io/v1beta2/devicetaintrules",
        "/apis/resource.k8s.io/v1alpha3/devicetaintrules",
    ),
)
HYPER_NODES: Final = ApiResource(
    "hypernodes.topology.volcano.sh",
    f"/apis/{HYPER_NODE_VERSION}/hypernodes",
    HyperNodeObject,
    decode_hyper_node,
    optional=True,
    dispensable=True,
)
PROVISIONING_REQUESTS: Final = ApiResource(
    "provisioningrequests.autoscaling.x-k8s.io",
    "/apis/autoscaling.x-k8s.io/v1/provisioningrequests",
    PodGroup,
    decode_pod_group,
    optional=True,
    dispensable=True,
    label_selector="app.kubernetes.io/managed-by=muster-lifecycle",
)
TOPOLOGIES: Final = "configmaps"
"""Kind of ConfigMaps that define topology trees, as in revisions."""
DEFINITIONS: Final[Mapping[str, DefinitionKind]] = {
    dialect.definition.revision_key: dialect.definition for dialect in DIALECTS if dialect.definition is not None
}
"""Kinds of objects that define gangs, by their name in revisions."""


def topologies(namespace: str) -> ApiResource[ConfigMap]:
    """The ConfigMaps of a namespace that define topology trees."""
    return ApiResource(
        TOPOLOGIES,
        f"/api/v1/namespaces/{namespace}/configmaps",
        ConfigMap,
        decode_config_map,
        dispensable=True,
        label_selector=TOPOLOGY_LABEL,
    )


def definitions(kind: DefinitionKind) -> ApiResource[PodGroup]:
    """The resource of a kind that defines gangs; dispensable, so that a forbidden dialect does not block the others."""
    path, *others = [f"/{'apis' if kind.group else 'api'}/{each}/{kind.plural}" for each in kind.api_versions]
    return ApiResource(
        kind.revision_key,
        path,
        PodGroup,
        decode_pod_group,
        optional=True,
        dispensable=True,
        label_selector=kind.label_selector,
        older_paths=tuple(others),
    )


COMPOSITE_GROUPS: Final = definitions(native.COMPOSITE)

ALL: Final[tuple[ApiResource[Any], ...]] = (
    NODES,
    PRIORITY_CLASSES,
    BUDGETS,
    NAMESPACES,
    CLAIMS,
    VOLUMES,
    STORAGE_CLASSES,
    CSI_NODES,
    CSI_DRIVERS,
    STORAGE_CAPACITIES,
    RESOURCE_SLICES,
    DEVICE_CLASSES,
    RESOURCE_CLAIMS,
    DEVICE_TAINT_RULES,
    HYPER_NODES,
    *map(definitions, DEFINITIONS.values()),
    COMPOSITE_GROUPS,
    PODS,
)
"""All watched resources, except the ConfigMaps of topology trees."""
