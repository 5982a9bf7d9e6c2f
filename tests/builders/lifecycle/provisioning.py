"""ProvisioningRequests for tests: the CustomResourceDefinition, and a simulated autoscaler."""

from typing import Any

Object = dict[str, Any]

_TEXT: Object = {"type": "string"}
_CONDITION: Object = {
    "type": "object",
    "required": ["type", "status", "reason", "message", "lastTransitionTime"],
    "properties": {
        **dict.fromkeys(("type", "reason", "message"), _TEXT),
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": {"type": "integer"},
    },
}
_POD_SET: Object = {
    "type": "object",
    "required": ["podTemplateRef", "count"],
    "properties": {
        "podTemplateRef": {"type": "object", "required": ["name"], "properties": {"name": _TEXT}},
        "count": {"type": "integer", "format": "int32", "minimum": 1},
    },
}
_SPEC: Object = {
    "type": "object",
    "required": ["podSets", "provisioningClassName"],
    "properties": {
        "provisioningClassName": {"type": "string", "maxLength": 253},
        "podSets": {"type": "array", "minItems": 1, "maxItems": 32, "items": _POD_SET},
        "parameters": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
_STATUS: Object = {
    "type": "object",
    "properties": {
        "conditions": {"type": "array", "items": _CONDITION},
        "provisioningClassDetails": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "provisioningrequests.autoscaling.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/autoscaler/pull/5848"},
    },
    "spec": {
        "group": "autoscaling.x-k8s.io",
        "scope": "Namespaced",
        "names": {
            "kind": "ProvisioningRequest",
            "listKind": "ProvisioningRequestList",
            "plural": "provisioningrequests",
            "singular": "provisioningrequest",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "properties": {"spec": _SPEC, "status": _STATUS}},
                },
            }
        ],
    },
}
"""The fields of autoscaling.x-k8s.io/v1 that matter here, with the API's limits."""


def condition(kind: str, status: str, message: str, at: str = "2026-01-31T12:00:00Z") -> Object:
    """A condition as the autoscaler writes it."""
    return {"type": kind, "status": status, "reason": "Simulated", "message": message, "lastTransitionTime": at}
