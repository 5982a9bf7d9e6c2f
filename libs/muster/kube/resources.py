"""Which kinds are watched: where the API serves them and how they are decoded."""

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from muster.kube.objects import (
    Encoded,
    Node,
    Pod,
    PodGroup,
    PriorityClass,
    decode_node,
    decode_pod,
    decode_pod_group,
    decode_priority_class,
)

T = TypeVar("T")


class Resource(Struct, Generic[T], frozen=True):
    """A kind. `kind` is its plural with its group, the name it has in revisions; `path` lists it in all namespaces.

    `decode` reads an object that does not fit `type`, as far as that goes. An `optional` kind comes with a
    CustomResourceDefinition, which may not be installed.
    """

    kind: str
    path: str
    type: type[T]
    decode: Callable[[Encoded], T]
    optional: bool = False


PODS: Final = Resource("pods", "/api/v1/pods", Pod, decode_pod)
NODES: Final = Resource("nodes", "/api/v1/nodes", Node, decode_node)
PRIORITY_CLASSES: Final = Resource(
    "priorityclasses.scheduling.k8s.io",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    PriorityClass,
    decode_priority_class,
)
SIGS_POD_GROUPS: Final = Resource(
    "podgroups.scheduling.sigs.k8s.io",
    "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups",
    PodGroup,
    decode_pod_group,
    optional=True,
)
X_POD_GROUPS: Final = Resource(
    "podgroups.scheduling.x-k8s.io",
    "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    PodGroup,
    decode_pod_group,
    optional=True,
)
ALL: Final[tuple[Resource[Any], ...]] = (NODES, PRIORITY_CLASSES, SIGS_POD_GROUPS, X_POD_GROUPS, PODS)
