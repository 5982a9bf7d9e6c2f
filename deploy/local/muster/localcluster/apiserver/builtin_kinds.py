"""Built-in kinds."""

from collections.abc import Iterable
from typing import Final

from muster.localcluster.apiserver import events, pod_groups
from muster.localcluster.apiserver.access.kinds import access_kinds
from muster.localcluster.apiserver.custom_kinds import DefinitionRules
from muster.localcluster.apiserver.devices import kinds as device_kinds
from muster.localcluster.apiserver.disruption_budgets import BudgetRules
from muster.localcluster.apiserver.kinds import STATUS, Kind, Rules, Subresource, TableForm
from muster.localcluster.apiserver.metadata import mistyped
from muster.localcluster.apiserver.pod_defaults import default_pod_spec
from muster.localcluster.apiserver.pod_table import PODS as POD_TABLE
from muster.localcluster.apiserver.pods import PodRules, PriorityClassRules
from muster.localcluster.apiserver.resource_quotas import QuotaRules
from muster.localcluster.apiserver.status import Cause, not_supported, required, too_long
from muster.localcluster.apiserver.storage_kinds import ClaimRules, StorageClassRules, VolumeRules
from muster.localcluster.apiserver.store import Object
from muster.localcluster.apiserver.tables import TABLES
from muster.localcluster.apiserver.webhook_configurations import ConfigurationRules

_MAX_DATA_BYTES: Final = 1024 * 1024


class _Stored(Rules):
    """No validation; status is separate from the rest."""


class _Data(Rules):
    """ConfigMaps and Secrets: string data of limited size."""

    def default(self, obj: Object) -> None:
        for value in (obj.get("data") or {}).values():
            if not isinstance(value, str | None):
                raise mistyped("v1", obj["kind"], value, f"{obj['kind']}.data", "string")

    def validate(self, obj: Object) -> Iterable[Cause]:
        values = [*(obj.get("data") or {}).values(), *(obj.get("binaryData") or {}).values()]
        if sum(len(str(value)) for value in values) > _MAX_DATA_BYTES:
            yield too_long("[]", _MAX_DATA_BYTES)


class _NamespaceRules(Rules):
    """Namespaces have their name as a label."""

    def default(self, obj: Object) -> None:
        labels = obj["metadata"].setdefault("labels", {})
        if name := obj["metadata"].get("name"):
            labels["kubernetes.io/metadata.name"] = name
        obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
        obj.setdefault("status", {}).setdefault("phase", "Active")


class _NodeRules(Rules):
    """Nodes: a create request may include the status."""

    takes_status_of_new = True

    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {})
        obj.setdefault("status", {})


class _TemplateRules(Rules):
    """Controllers of pods: their template gets the defaults of a pod."""

    counts_generations = True

    def __init__(self, counted: str = "replicas", *, restarts: bool = True) -> None:
        self._counted, self._restarts = counted, restarts

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault(self._counted, 1)
        if template := (spec.get("template") or {}).get("spec"):
            default_pod_spec(template, restarts=self._restarts)

    def validate(self, obj: Object) -> Iterable[Cause]:
        spec = obj["spec"]
        if not ((spec.get("template") or {}).get("spec") or {}).get("containers"):
            yield required("spec.template.spec.containers")


class _JobRules(_TemplateRules):
    """Jobs: defaults and validation that the job controller relies on."""

    def __init__(self) -> None:
        super().__init__("parallelism", restarts=False)

    def validate(self, obj: Object) -> Iterable[Cause]:
        yield from super().validate(obj)
        policy = ((obj["spec"].get("template") or {}).get("spec") or {}).get("restartPolicy")
        if not policy:
            yield required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
        elif policy not in ("OnFailure", "Never"):
            yield not_supported("spec.template.spec.restartPolicy", policy, ("OnFailure", "Never"))

    def default(self, obj: Object) -> None:
        super().default(obj)
        spec, metadata = obj["spec"], obj["metadata"]
        if "completions" not in spec and spec["parallelism"] == 1:
            spec["completions"] = 1
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("backoffLimit", 6)
        if not spec.get("manualSelector") and metadata.get("uid"):
            own_labels = {"batch.kubernetes.io/controller-uid": metadata["uid"]}
            spec.setdefault("selector", {"matchLabels": own_labels})
            of_template = spec.setdefault("template", {}).setdefault("metadata", {})
            name = metadata.get("name", "")
            labels = {
                **own_labels,
                "batch.kubernetes.io/job-name": name,
                "controller-uid": metadata["uid"],
                "job-name": name,
            }
            of_template["labels"] = {**(of_template.get("labels") or {}), **labels}
            if not metadata.get("labels"):
                metadata["labels"] = dict(of_template["labels"])


_BIND: Final = Subresource("binding", ("create",), "Binding")
_EVICT: Final = Subresource("eviction", ("create",), "Eviction", "policy", "v1")
_LOG: Final = Subresource("log", ("get",))
_TOKEN: Final = Subresource("token", ("create",), "TokenRequest", "authentication.k8s.io", "v1")
_POD_FIELDS: Final = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)


def builtin_kinds() -> list[Kind]:
    """All built-in kinds, in the order of discovery."""
    return [*_core(), *_others()]


def _kind(group: str, version: str, name: str, plural: str, rules: Rules, *more: str, **options: object) -> Kind:
    """`more`: short names. The table is looked up by collection."""
    qualified = f"{plural}.{group}" if group else plural
    table: TableForm | None = TABLES.get(qualified)
    return Kind(group, version, name, plural, short_names=more, rules=rules, **{"table": table, **options})  # type: ignore[arg-type]


def _core() -> list[Kind]:
    only_status = (STATUS,)
    return [
        _kind("", "v1", "ConfigMap", "configmaps", _Data(), "cm"),
        events.core_kind(),
        _kind(
            "",
            "v1",
            "Namespace",
            "namespaces",
            _NamespaceRules(),
            "ns",
            namespaced=False,
            subresources=only_status,
            selectable=("status.phase",),
        ),
        _kind(
            "",
            "v1",
            "Node",
            "nodes",
            _NodeRules(),
            "no",
            namespaced=False,
            subresources=only_status,
            selectable=("spec.unschedulable",),
        ),
        _kind(
            "",
            "v1",
            "PersistentVolume",
            "persistentvolumes",
            VolumeRules(),
            "pv",
            namespaced=False,
            subresources=only_status,
        ),
        _kind(
            "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", ClaimRules(), "pvc", subresources=only_status
        ),
        _kind(
            "",
            "v1",
            "Pod",
            "pods",
            PodRules(),
            "po",
            categories=("all",),
            subresources=(STATUS, _BIND, _EVICT, _LOG),
            selectable=_POD_FIELDS,
            table=POD_TABLE,
        ),
        _kind("", "v1", "PodTemplate", "podtemplates", _Stored()),
        _kind("", "v1", "ResourceQuota", "resourcequotas", QuotaRules(), "quota", subresources=only_status),
        _kind("", "v1", "Secret", "secrets", _Data(), selectable=("type",)),
        _kind("", "v1", "Service", "services", _Stored(), "svc", categories=("all",), subresources=only_status),
        _kind("", "v1", "ServiceAccount", "serviceaccounts", _Stored(), "sa", subresources=(_TOKEN,)),
    ]


def _others() -> list[Kind]:
    only_status = (STATUS,)
    every = {"categories": ("all",), "subresources": only_status}
    return [
        _kind("apps", "v1", "Deployment", "deployments", _TemplateRules(), "deploy", **every),
        _kind("apps", "v1", "ReplicaSet", "replicasets", _TemplateRules(), "rs", **every),
        _kind("apps", "v1", "StatefulSet", "statefulsets", _TemplateRules(), "sts", **every),
        _kind("batch", "v1", "Job", "jobs", _JobRules(), **every, selectable=("status.successful",)),
        _kind(
            "autoscaling",
            "v2",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            _Stored(),
            "hpa",
            categories=("all",),
            subresources=only_status,
        ),
        events.grouped_kind(),
        _kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", _Stored(), "netpol"),
        _kind("coordination.k8s.io", "v1", "Lease", "leases", _Stored()),
        _kind(
            "policy",
            "v1",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
            BudgetRules(),
            "pdb",
            subresources=only_status,
        ),
        _kind(
            "admissionregistration.k8s.io",
            "v1",
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            ConfigurationRules(),
            namespaced=False,
            categories=("api-extensions",),
        ),
        _kind(
            "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", PriorityClassRules(), "pc", namespaced=False
        ),
        *pod_groups.kinds(),
        *access_kinds(),
        *device_kinds.kinds(),
        _kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", StorageClassRules(), "sc", namespaced=False),
        _kind("storage.k8s.io", "v1", "CSINode", "csinodes", _Stored(), namespaced=False),
        _kind("storage.k8s.io", "v1", "CSIDriver", "csidrivers", _Stored(), namespaced=False),
        _kind("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", _Stored()),
        _kind(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            DefinitionRules(),
            "crd",
            "crds",
            namespaced=False,
            categories=("api-extensions",),
            subresources=only_status,
        ),
    ]
