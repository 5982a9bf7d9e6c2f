"""Gangs as manifests: pods and PodGroups for the API, in the dialect of choice.

gang("a").of(8).asking(cpu=1)                       # Koordinator annotations, all 8 must start together
gang("a").of(5).needing(3).declared_by("coscheduling")
plain("p").asking(cpu=1)
"""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from builders.gangs.gang import KOORDINATOR, Gang
from muster.gangs.facts import GangMode, MatchPolicy, RepairPolicy

SCHEDULER = "muster"

_GROUP_NAME = "scheduling.k8s.io/group-name"
_GROUP_POD_NUM = "scheduling.k8s.io/group-pod-num"
_POD_GROUP_NAME = "kueue.x-k8s.io/pod-group-name"
_POD_GROUP_TOTAL_COUNT = "kueue.x-k8s.io/pod-group-total-count"
_DEFINITIONS = {
    "koordinator": "scheduling.sigs.k8s.io/v1alpha1",
    "coscheduling": "scheduling.x-k8s.io/v1alpha1",
    "kube-batch": "scheduling.incubator.k8s.io/v1alpha1",
    "volcano": "scheduling.volcano.sh/v1beta1",
    "native": "scheduling.k8s.io/v1beta1",
    "kai": "scheduling.run.ai/v2alpha2",
}

_EVICTED_IS_NOT_FAILED: dict[str, Any] = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}
"""Without it a real Job controller gives up after some evictions."""


@dataclass(frozen=True)
class Workload(Gang):
    """A gang, or plain pods, to create."""

    unsupported: ClassVar[tuple[str, ...]] = (
        "declared_priority",
        "declared_preempts",
        "budgets",
        "evicted_whole",
        "counts_succeeded",
        "homogeneous",
        "minimum_free_cpu",
        "problem",
        "created_seconds",
        "incarnation",
    )

    def all_annotations(self) -> dict[str, str]:
        """Returns annotations of its rules, then those that were added by key."""
        rules: dict[str, str] = {}
        if self.mode is GangMode.NON_STRICT:
            rules[KOORDINATOR + "mode"] = "NonStrict"
            rules[KOORDINATOR + "waiting-time"] = f"{self.waiting_time_seconds:g}s"
        if self.match_policy is not MatchPolicy.ONCE_SATISFIED:
            rules[KOORDINATOR + "match-policy"] = self.match_policy.name.lower().replace("_", "-")
        if self.group_names:
            rules[KOORDINATOR + "groups"] = json.dumps(self.group_names)
        if self.repair_policy is not RepairPolicy.YIELD:
            rules["muster.dev/repair-policy"] = self.repair_policy.name.capitalize()
        if self.expected_seconds:
            rules["muster.dev/expected-duration"] = f"{self.expected_seconds:g}s"
        if self.constraints:
            rules["muster.dev/topology"] = self.constraints
        if self.tree:
            rules["muster.dev/topology-tree"] = self.tree
        return {**rules, **self.annotations}

    @property
    def group(self) -> tuple[str, ...]:
        """Ids of the gangs in its group; empty if the declaration is invalid."""
        try:
            names = json.loads(self.all_annotations().get(KOORDINATOR + "groups", "[]"))
        except ValueError:
            return ()
        sensible = isinstance(names, list) and all(isinstance(name, str) and "/" in name for name in names)
        return tuple(f"koordinator/{name}" for name in names) if sensible else ()

    @property
    def priority_class(self) -> str:
        return f"priority-{self.priority}".replace("--", "-minus-") + ("" if self.preempts else "-never")

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
            "metadata": {"name": self.name, "namespace": self.namespace, "annotations": self.all_annotations()},
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
        self.check_supported()
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
            own = {KOORDINATOR + "name": self.name, KOORDINATOR + "min-available": minimum}
            return {}, {**own, **self.all_annotations()}
        if self.dialect == "koordinator":
            return {"pod-group.scheduling.sigs.k8s.io": self.name}, {}
        if self.dialect == "coscheduling":
            return {"scheduling.x-k8s.io/pod-group": self.name}, {}
        if self.dialect == "lightweight":
            prefix = "pod-group.scheduling.sigs.k8s.io/"
            return {prefix + "name": self.name, prefix + "min-available": minimum}, self.all_annotations()
        if self.dialect in ("kube-batch", "volcano"):
            return {}, {_GROUP_NAME: self.name}
        if self.dialect == "kai":
            return {}, {"pod-group-name": self.name}
        if self.dialect == "batch":
            return {}, {_GROUP_NAME: self.name, _GROUP_POD_NUM: minimum, **self.all_annotations()}
        if self.dialect == "kueue":
            return {_POD_GROUP_NAME: self.name}, {_POD_GROUP_TOTAL_COUNT: minimum, **self.all_annotations()}
        return {}, self.all_annotations()


def gang(name: str) -> Workload:
    """Returns a gang declared by Koordinator's annotations."""
    return Workload(name)


def plain(name: str) -> Workload:
    """Returns plain pods without marks."""
    return Workload(name, dialect="plain")
