"""Gangs as manifests: pods and PodGroups for the API, in the dialect of choice.

gang("a").of(8).asking(cpu=1)                       # Koordinator annotations, all 8 must start together
gang("a").of(5).needing(3).declared_by("coscheduling")
plain("p").asking(cpu=1)
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

Dialect = Literal["annotations", "koordinator", "coscheduling", "kube-batch", "batch", "lightweight", "native", "plain"]
SCHEDULER = "muster"

_KOORDINATOR = "gang.scheduling.koordinator.sh/"
_GROUP_NAME = "scheduling.k8s.io/group-name"
_GROUP_POD_NUM = "scheduling.k8s.io/group-pod-num"
_DEFINITIONS = {
    "koordinator": "scheduling.sigs.k8s.io/v1alpha1",
    "coscheduling": "scheduling.x-k8s.io/v1alpha1",
    "kube-batch": "scheduling.incubator.k8s.io/v1alpha1",
    "native": "scheduling.k8s.io/v1beta1",
}

_EVICTED_IS_NOT_FAILED: dict[str, Any] = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}
"""Without it a real Job controller gives up after some evictions."""


@dataclass(frozen=True)
class Workload:
    """A gang, or plain pods, to create. Every method returns a changed copy."""

    name: str
    dialect: Dialect = "annotations"
    namespace: str = "default"
    size: int = 1
    minimum: Any = None
    """None: the number of pods. Other values, also invalid ones, are written as they are."""
    requests: tuple[dict[str, str], ...] = ({"cpu": "1"},)
    """Requests of pod i: element i modulo the length."""
    annotations: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)
    selectors: dict[int, dict[str, str]] = field(default_factory=dict)
    """Additional node selectors of single pods, by number."""
    priority: int | None = None
    preempts: bool = True
    """Whether the gang may preempt."""
    gates: tuple[str, ...] = ()
    storage_class: str = ""
    """Storage class of one volume claim per pod; empty: no claims."""
    ephemeral: bool = False
    """Whether the volumes are ephemeral."""
    spec: dict[str, Any] = field(default_factory=dict)
    """Additional fields of the pods' spec."""
    declared: dict[str, Any] = field(default_factory=dict)
    """Additional fields of the spec of its definition."""
    version: str = ""
    """API version of its definition; empty: the newest one."""

    # -- what it is

    def named(self, name: str) -> Self:
        return replace(self, name=name)

    def of(self, size: int) -> Self:
        return replace(self, size=size)

    def needing(self, minimum: Any) -> Self:
        """Sets the minimum, valid or not."""
        return replace(self, minimum=minimum)

    def asking(self, *, memory: str = "", **amounts: int | str) -> Self:
        """Sets the requests of each pod; `gpu` is nvidia.com/gpu."""
        return self.asking_each({**amounts, **({"memory": memory} if memory else {})})

    def asking_each(self, *requests: dict[str, Any]) -> Self:
        """Sets the requests of the pods in turn, repeating from the start."""
        names = {"gpu": "nvidia.com/gpu"}
        written = tuple({names.get(name, name): str(amount) for name, amount in each.items()} for each in requests)
        return replace(self, requests=written)

    def declared_by(self, dialect: Dialect) -> Self:
        return replace(self, dialect=dialect)

    def in_namespace(self, namespace: str) -> Self:
        return replace(self, namespace=namespace)

    def annotated(self, **annotations: str) -> Self:
        """Adds Koordinator's annotations by their last part, with _ for -: mode="Strict", total_number="4"."""
        named = {_KOORDINATOR + key.replace("_", "-"): value for key, value in annotations.items()}
        return replace(self, annotations={**self.annotations, **named})

    def labelled(self, **labels: str) -> Self:
        """Adds labels to its pods."""
        return replace(self, labels={**self.labels, **labels})

    def marked(self, annotations: dict[str, str]) -> Self:
        """Adds annotations by their full keys."""
        return replace(self, annotations={**self.annotations, **annotations})

    def with_group(self, *gangs: str) -> Self:
        """Adds a gang group of these gangs ("namespace/name")."""
        return self.annotated(groups=json.dumps(gangs))

    def with_priority(self, priority: int) -> Self:
        return replace(self, priority=priority)

    def harming_nobody(self) -> Self:
        """Sets preemptionPolicy Never, by its priority class."""
        return replace(self, preempts=False)

    def gated(self, *gates: str) -> Self:
        return replace(self, gates=gates)

    def with_claims(self, storage_class: str) -> Self:
        """Gives every pod a claim of that storage class."""
        return replace(self, storage_class=storage_class)

    def with_scratch(self, storage_class: str) -> Self:
        """Gives every pod an ephemeral volume of that storage class."""
        return replace(self, storage_class=storage_class, ephemeral=True)

    def with_spec(self, **fields: Any) -> Self:
        """Adds fields to the pods' spec."""
        return replace(self, spec={**self.spec, **fields})

    def declaring(self, **fields: Any) -> Self:
        """Adds fields to the PodGroup's spec."""
        return replace(self, declared={**self.declared, **fields})

    def of_version(self, version: str) -> Self:
        """Sets the API version of the PodGroup."""
        return replace(self, version=version)

    def on_nodes(self, **labels: str) -> Self:
        """Adds a node selector to all pods."""
        return replace(self, node_selector={**self.node_selector, **labels})

    def pod_on_nodes(self, number: int, **labels: str) -> Self:
        """Adds a node selector to one pod."""
        return replace(self, selectors={**self.selectors, number: labels})

    # -- what follows

    @property
    def id(self) -> str:
        """The gang's id; for plain pods that of the first pod."""
        dialect = "koordinator" if self.dialect == "annotations" else self.dialect
        return f"{dialect}/{self.namespace}/{self.pod_name(0) if dialect == 'plain' else self.name}"

    @property
    def group(self) -> tuple[str, ...]:
        """Ids of the gangs in its group; empty if the declaration is invalid."""
        try:
            names = json.loads(self.annotations.get(_KOORDINATOR + "groups", "[]"))
        except ValueError:
            return ()
        sensible = isinstance(names, list) and all(isinstance(name, str) and "/" in name for name in names)
        return tuple(f"koordinator/{name}" for name in names) if sensible else ()

    @property
    def needed(self) -> int:
        """The number of pods that must start together; the size if the minimum is invalid."""
        return self.minimum if isinstance(self.minimum, int) and self.minimum > 0 else self.size

    @property
    def priority_class(self) -> str:
        return f"priority-{self.priority}".replace("--", "-minus-") + ("" if self.preempts else "-never")

    def pod_name(self, number: int) -> str:
        return f"{self.name}-{number}"

    def pods(self, *numbers: int) -> list[dict[str, Any]]:
        """Returns manifests of these pods, or of all."""
        return [self._pod(number) for number in numbers or range(self.size)]

    def claim_name(self, number: int) -> str:
        return f"{self.pod_name(number)}-data"

    def claims(self, *numbers: int) -> list[dict[str, Any]]:
        """Returns manifests of the claims of these pods, or of all."""
        if not self.storage_class or self.ephemeral:
            return []
        return [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": self.claim_name(number), "namespace": self.namespace},
                "spec": self._claim_spec(),
            }
            for number in numbers or range(self.size)
        ]

    def _claim_spec(self) -> dict[str, Any]:
        return {
            "storageClassName": self.storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }

    def definition(self) -> dict[str, Any] | None:
        """Returns the PodGroup; None if the dialect has none."""
        if self.dialect not in _DEFINITIONS:
            return None
        api_version, minimum = _DEFINITIONS[self.dialect], self.size if self.minimum is None else self.minimum
        group, _, version = api_version.partition("/")
        native = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
        return {
            "apiVersion": f"{group}/{self.version or version}",
            "kind": "PodGroup",
            "metadata": {"name": self.name, "namespace": self.namespace, "annotations": self.annotations},
            "spec": {**(native if self.dialect == "native" else {"minMember": minimum}), **self.declared},
        }

    def job(self, name: str, pods: int) -> dict[str, Any]:
        """Returns a Job that creates this many of its pods."""
        pod = self._pod(0)
        template = {"metadata": {key: pod["metadata"][key] for key in ("labels", "annotations")}, "spec": pod["spec"]}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "podFailurePolicy": _EVICTED_IS_NOT_FAILED,
                "template": template,
            },
        }

    def _pod(self, number: int) -> dict[str, Any]:
        labels, annotations = self._marks()
        requests = self.requests[number % len(self.requests)]
        resources = {"requests": requests, "limits": {name: requests[name] for name in requests if "/" in name}}
        spec: dict[str, Any] = {
            "schedulerName": SCHEDULER,
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources}],
            "nodeSelector": {**self.node_selector, **self.selectors.get(number, {})},
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            **self.spec,
        }
        if self.dialect == "native":
            spec["schedulingGroup"] = {"podGroupName": self.name}
        if self.priority is not None:
            spec["priorityClassName"] = self.priority_class
        if self.gates:
            spec["schedulingGates"] = [{"name": gate} for gate in self.gates]
        if self.storage_class:
            source: dict[str, Any] = {"persistentVolumeClaim": {"claimName": self.claim_name(number)}}
            if self.ephemeral:
                source = {"ephemeral": {"volumeClaimTemplate": {"spec": self._claim_spec()}}}
            spec["volumes"] = [{"name": "data", **source}]
        metadata = {"name": self.pod_name(number), "namespace": self.namespace}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "labels": {**self.labels, **labels}, "annotations": annotations},
            "spec": spec,
        }

    def _marks(self) -> tuple[dict[str, str], dict[str, str]]:
        minimum = str(self.size if self.minimum is None else self.minimum)
        if self.dialect == "annotations":
            own = {_KOORDINATOR + "name": self.name, _KOORDINATOR + "min-available": minimum}
            return {}, {**own, **self.annotations}
        if self.dialect == "koordinator":
            return {"pod-group.scheduling.sigs.k8s.io": self.name}, {}
        if self.dialect == "coscheduling":
            return {"scheduling.x-k8s.io/pod-group": self.name}, {}
        if self.dialect == "lightweight":
            prefix = "pod-group.scheduling.sigs.k8s.io/"
            return {prefix + "name": self.name, prefix + "min-available": minimum}, self.annotations
        if self.dialect == "kube-batch":
            return {}, {_GROUP_NAME: self.name}
        if self.dialect == "batch":
            return {}, {_GROUP_NAME: self.name, _GROUP_POD_NUM: minimum, **self.annotations}
        return {}, self.annotations


def gang(name: str) -> Workload:
    """Returns a gang declared by Koordinator's annotations."""
    return Workload(name)


def plain(name: str) -> Workload:
    """Returns plain pods without marks."""
    return Workload(name, dialect="plain")
