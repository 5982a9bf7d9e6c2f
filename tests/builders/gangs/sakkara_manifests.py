"""Sakkara's groups as manifests.

group("a").of(8).asking_levels(rack={"type": "spread", "partitions": 2})
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from builders.gangs.manifests import Workload


@dataclass(frozen=True)
class SakkaraGroup(Workload):
    """A group that is defined by a ConfigMap of its name, or by the labels of its pods."""

    data: dict[str, str] = field(default_factory=dict)
    """Data of the ConfigMap besides name and size."""
    by_labels: bool = False

    def on_tree(self, name: str) -> Self:
        """Sets the topology tree."""
        return replace(self, tree=name)

    def asking_levels(self, **levels: Mapping[str, Any]) -> Self:
        """Sets the constraints by level."""
        return self.saying(constraints=json.dumps(levels))

    def saying(self, **data: str) -> Self:
        """Adds data to its ConfigMap."""
        return replace(self, data={**self.data, **data})

    def declared_by_labels(self) -> Self:
        """Declares the group by pod labels only."""
        return replace(self, by_labels=True)

    @property
    def id(self) -> str:
        return f"sakkara/{self.namespace}/{self.name}"

    def definition(self) -> dict[str, Any] | None:
        if self.by_labels:
            return None
        labels, annotations = {"sakkara.group": ""}, self._of_tree()
        metadata = {"name": self.name, "namespace": self.namespace, "labels": labels, "annotations": annotations}
        data = {"name": self.name, "size": str(self.size), **self.data}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}

    def _marks(self) -> tuple[dict[str, str], dict[str, str]]:
        name = {"sakkara.group.name": self.name}
        if not self.by_labels:
            return name, self.annotations
        labels = {"size": str(self.size), **{key: text for key, text in self.data.items() if key == "priority"}}
        for level, asked in json.loads(self.data.get("constraints", "{}")).items():
            labels |= {f"constraint.{what}.{level}": str(value) for what, value in asked.items()}
        return {**name, **{f"sakkara.group.{key}": text for key, text in labels.items()}}, self._of_tree()

    def _of_tree(self) -> dict[str, str]:
        return {**self.annotations, **({"muster.dev/topology-tree": self.tree} if self.tree else {})}


def group(name: str) -> SakkaraGroup:
    """Returns a group with a ConfigMap."""
    return SakkaraGroup(name)
