"""CustomResourceDefinitions of kinds that controllers of others bring along, with an open schema."""

from typing import Any


def open_kind(group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    """Returns the CustomResourceDefinition of a namespaced kind, without a status subresource."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }
