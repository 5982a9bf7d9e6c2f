"""Decodes request bodies in Kubernetes' protobuf form, which newer kubectl sends for objects created from flags.

Supports the messages and fields of the table, which `kubectl create KIND`, `kubectl auth` and `kubectl drain` send.
Responses are always JSON, which those clients accept.
"""

import base64
from collections.abc import Iterator
from typing import Any, Final

from muster.localcluster.apiserver.store import Object

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\0"

_FIELDS: Final[dict[str, str]] = {
    "TypeMeta": "1 apiVersion, 2 kind",
    "Unknown": "1 typeMeta TypeMeta, 2 raw raw, 3 contentEncoding, 4 contentType",
    "ObjectMeta": "1 name, 2 generateName, 3 namespace, 4 selfLink, 5 uid, 6 resourceVersion, 7 generation int, "
    "8 creationTimestamp Time, 11 labels {str}, 12 annotations {str}, 13 ownerReferences [OwnerReference], "
    "14 finalizers [str]",
    "OwnerReference": "1 kind, 3 name, 4 uid, 5 apiVersion, 6 controller bool, 7 blockOwnerDeletion bool",
    "LabelSelector": "1 matchLabels {str}, 2 matchExpressions [LabelSelectorRequirement]",
    "LabelSelectorRequirement": "1 key, 2 operator, 3 values [str]",
    "DeleteOptions": "1 gracePeriodSeconds int, 2 preconditions Preconditions, 3 orphanDependents bool, "
    "4 propagationPolicy, 5 dryRun [str]",
    "Preconditions": "1 uid, 2 resourceVersion",
    "Eviction": "1 metadata ObjectMeta, 2 deleteOptions DeleteOptions",
    "ObjectReference": "1 kind, 2 namespace, 3 name, 4 uid, 5 apiVersion",
    "Binding": "1 metadata ObjectMeta, 2 target ObjectReference",
    "Namespace": "1 metadata ObjectMeta, 2 spec Any, 3 status Any",
    "ConfigMap": "1 metadata ObjectMeta, 2 data {str}, 3 binaryData {bytes}, 4 immutable bool",
    "Secret": "1 metadata ObjectMeta, 2 data {bytes}, 3 type, 4 stringData {str}, 5 immutable bool",
    "ServiceAccount": "1 metadata ObjectMeta",
    "ResourceQuota": "1 metadata ObjectMeta, 2 spec ResourceQuotaSpec, 3 status Any",
    "ResourceQuotaSpec": "1 hard {Quantity}, 2 scopes [str]",
    "PodDisruptionBudget": "1 metadata ObjectMeta, 2 spec PodDisruptionBudgetSpec, 3 status Any",
    "PodDisruptionBudgetSpec": "1 minAvailable IntOrString, 2 selector LabelSelector, 3 maxUnavailable IntOrString",
    "Role": "1 metadata ObjectMeta, 2 rules [PolicyRule]",
    "ClusterRole": "1 metadata ObjectMeta, 2 rules [PolicyRule], 3 aggregationRule AggregationRule",
    "AggregationRule": "1 clusterRoleSelectors [LabelSelector]",
    "PolicyRule": "1 verbs [str], 2 apiGroups [str], 3 resources [str], 4 resourceNames [str], 5 nonResourceURLs [str]",
    "RoleBinding": "1 metadata ObjectMeta, 2 subjects [Subject], 3 roleRef RoleRef",
    "ClusterRoleBinding": "1 metadata ObjectMeta, 2 subjects [Subject], 3 roleRef RoleRef",
    "Subject": "1 kind, 2 apiGroup, 3 name, 4 namespace",
    "RoleRef": "1 apiGroup, 2 kind, 3 name",
    "SelfSubjectAccessReview": "1 metadata ObjectMeta, 2 spec AccessReviewSpec, 3 status Any",
    "AccessReviewSpec": "1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes NonResourceAttributes",
    "ResourceAttributes": "1 namespace, 2 verb, 3 group, 4 version, 5 resource, 6 subresource, 7 name",
    "NonResourceAttributes": "1 path, 2 verb",
    "SelfSubjectRulesReview": "1 metadata ObjectMeta, 2 spec RulesReviewSpec, 3 status Any",
    "RulesReviewSpec": "1 namespace",
    "SelfSubjectReview": "1 metadata ObjectMeta, 2 status Any",
    "TokenRequest": "1 metadata ObjectMeta, 2 spec TokenRequestSpec, 3 status Any",
    "TokenRequestSpec": "1 audiences [str], 3 boundObjectRef Any, 4 expirationSeconds int",
    "PriorityClass": "1 metadata ObjectMeta, 2 value int, 3 globalDefault bool, 4 description, 5 preemptionPolicy",
    "Job": "1 metadata ObjectMeta, 2 spec JobSpec, 3 status Any",
    "JobSpec": "1 parallelism int, 2 completions int, 3 activeDeadlineSeconds int, 6 template PodTemplateSpec, "
    "7 backoffLimit int, 8 ttlSecondsAfterFinished int, 9 completionMode, 10 suspend bool",
    "Deployment": "1 metadata ObjectMeta, 2 spec DeploymentSpec, 3 status Any",
    "DeploymentSpec": "1 replicas int, 2 selector LabelSelector, 3 template PodTemplateSpec, 4 strategy Any, "
    "5 minReadySeconds int, 6 revisionHistoryLimit int, 7 paused bool, 9 progressDeadlineSeconds int",
    "PodTemplateSpec": "1 metadata ObjectMeta, 2 spec PodSpec",
    "PodSpec": "2 containers [Container], 3 restartPolicy, 4 terminationGracePeriodSeconds int, 6 dnsPolicy, "
    "7 nodeSelector {str}, 8 serviceAccountName, 9 serviceAccount, 10 nodeName, 11 hostNetwork bool, 12 hostPID bool, "
    "13 hostIPC bool, 14 securityContext Any, 16 hostname, 17 subdomain, 19 schedulerName, 24 priorityClassName",
    "Container": "1 name, 2 image, 3 command [str], 4 args [str], 5 workingDir, 6 ports [ContainerPort], "
    "7 env [EnvVar], 8 resources ResourceRequirements, 13 terminationMessagePath, 14 imagePullPolicy, 16 stdin bool, "
    "17 stdinOnce bool, 18 tty bool, 20 terminationMessagePolicy",
    "ContainerPort": "1 name, 2 hostPort int, 3 containerPort int, 4 protocol, 5 hostIP",
    "EnvVar": "1 name, 2 value",
    "ResourceRequirements": "1 limits {Quantity}, 2 requests {Quantity}",
    "Quantity": "1 string",
    "IntOrString": "1 type int, 2 intVal int, 3 strVal",
}
"""Fields by number. The type is a message, int, bool or bytes; default string; [] is a list, {} a map from strings.

`Any` is a message that is ignored: the server sets the field itself.
"""


class UnknownField(ValueError):
    """Field of a message that is not in the table."""


def decode_protobuf(body: bytes) -> Object:
    """Decode the object of a request body. Raises ValueError."""
    if not body.startswith(_MAGIC):
        raise ValueError("the body does not start with the magic number of Kubernetes' protobuf format")
    envelope = _message("Unknown", body[len(_MAGIC) :])
    kind = envelope.get("typeMeta", {}).get("kind", "")
    if kind not in _FIELDS:
        raise UnknownField(f"{kind} is not known in protobuf form; send JSON")
    return {**envelope["typeMeta"], **_message(kind, envelope.get("raw", b""))}


def _message(name: str, content: bytes) -> Object:
    fields = _table(name)
    found: Object = {}
    for number, value in _wire(content):
        if number not in fields:
            raise UnknownField(f"field {number} of {name} is not known in protobuf form; send JSON")
        field, form = fields[number]
        if form.startswith("["):
            found.setdefault(field, []).append(_value(form[1:-1], value))
        elif form.startswith("{"):
            entry = dict(_wire(value))
            found.setdefault(field, {})[entry.get(1, b"").decode()] = _value(form[1:-1], entry.get(2, b""))
        elif (decoded := _value(form, value)) not in ("", {}, False, None):
            found[field] = decoded
    return found


def _value(form: str, value: Any) -> Any:
    match form:
        case "str":
            return value.decode()
        case "bytes":
            return base64.b64encode(value).decode()
        case "raw":
            return value
        case "int":
            return value - (1 << 64) if value >> 63 else value
        case "bool":
            return bool(value)
        case "Any" | "Time":
            return None
    message = _message(form, value)
    if form == "Quantity":
        return message.get("string", "0")
    if form == "IntOrString":
        return message.get("strVal", "") if message.get("type") else message.get("intVal", 0)
    return message


def _table(name: str) -> dict[int, tuple[str, str]]:
    entries = (entry.split() for entry in _FIELDS[name].split(", "))
    return {int(number): (field, form[0] if form else "str") for number, field, *form in entries}


def _wire(content: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and raw values."""
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        match tag & 7:
            case 0:
                value: Any
                value, at = _varint(content, at)
            case 2:
                length, at = _varint(content, at)
                value, at = content[at : at + length], at + length
            case other:
                raise ValueError(f"wire type {other} is not used by Kubernetes")
        yield tag >> 3, value


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        if at >= len(content):
            raise ValueError("it ends in the middle of a number")
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
