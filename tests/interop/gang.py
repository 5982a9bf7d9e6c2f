"""A gang to declare, and the pod template that every kind of workload uses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JSON = dict[str, Any]

GANG = "interop.muster.dev/gang"
"""Label of all pods of a gang: scenarios find the pods by it, whatever the controller calls them."""
RACK = "interop.muster.dev/rack"
"""Label of nodes, in scenarios with racks."""
KUEUE_RACKS = "interop.muster.dev/kueue-racks"
"""Label of nodes in racks that Kueue assigns."""
SCHEDULER = "muster"
IMAGE = "registry.k8s.io/pause:3.10"
NAME = "pod-group.scheduling.sigs.k8s.io/name"
MINIMUM = "pod-group.scheduling.sigs.k8s.io/min-available"


@dataclass(frozen=True)
class Gang:
    """A gang of `size` pods, all of which must start together. Each requests one CPU."""

    namespace: str
    name: str
    size: int
    node_labels: Mapping[str, str]
    """Labels of the nodes that its pods may use."""
    priority_class: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of one kind of workload, set by a scenario."""

    def metadata(self, **more: Any) -> JSON:
        """Metadata of the object that declares it."""
        return {"name": self.name, "namespace": self.namespace, **more}

    def labels(self) -> dict[str, str]:
        """Labels that let scenarios find its pods."""
        return {GANG: self.name}

    def marks(self) -> dict[str, str]:
        """The two lightweight labels that declare the gang on the pods themselves."""
        return {NAME: self.name, MINIMUM: str(self.size)}

    def template(self, *, marked: bool = True, named: bool = True, **spec: Any) -> JSON:
        """A pod template: with the lightweight labels, unless `marked` is false, and with `schedulerName`, unless
        `named` is false.
        """
        labels = self.labels() | (self.marks() if marked else {})
        priority = {"priorityClassName": self.priority_class} if self.priority_class else {}
        container = spec.pop("container", "main")
        return {
            "metadata": {"labels": labels},
            "spec": {
                **({"schedulerName": SCHEDULER} if named else {}),
                "nodeSelector": dict(self.node_labels),
                "containers": [
                    {
                        "name": container,
                        "image": IMAGE,
                        "resources": {"requests": {"cpu": "1"}},
                    }
                ],
                **priority,
                **spec,
            },
        }
