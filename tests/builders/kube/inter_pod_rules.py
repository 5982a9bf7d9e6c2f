"""JSON of inter-pod rules in a pod's spec."""

from typing import Any

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def labelled(**labels: str) -> dict[str, Any]:
    """A label selector for these labels."""
    return {"matchLabels": labels}


def term(selector: Any = None, key: str = HOST, **more: Any) -> dict[str, Any]:
    """A pod affinity term for a label selector."""
    return {"labelSelector": selector, "topologyKey": key, **more}


def wish(weight: int, of: dict[str, Any]) -> dict[str, Any]:
    """A preferred term."""
    return {"weight": weight, "podAffinityTerm": of}


def affinity(
    near: Any = (), away: Any = (), preferred_near: Any = (), preferred_away: Any = (), **more: Any
) -> dict[str, Any]:
    """spec.affinity with these terms."""
    return {
        "podAffinity": {REQUIRED: list(near), PREFERRED: list(preferred_near)},
        "podAntiAffinity": {REQUIRED: list(away), PREFERRED: list(preferred_away)},
        **more,
    }


def spread(selector: Any = None, key: str = ZONE, **more: Any) -> dict[str, Any]:
    """One of spec.topologySpreadConstraints."""
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
        **more,
    }
