"""Reads QueueJobs, and describes what is invalid in them."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from muster.dialects.kube_arbitrator import parse_node_selector
from muster.dialects.values import BadValue, quoted_value
from muster.gangs.quoting import quoted
from muster.kube.api_resources import ApiResource
from muster.kube.json_repair import shallow
from muster.kube.objects import NOTHING, UNREADABLE, Encoded, ObjectMeta, PodSpec, salvage
from muster.kube.pod_facts import Priorities
from muster.lifecycle.queue_jobs.status import RECORD, JobStatus, read_status

API_VERSION: Final = "arbitrator.incubator.k8s.io/v1alpha1"
KIND: Final = "QueueJob"
PLURAL: Final = "queuejobs"

MAX_TASKS: Final = 100
MAX_PODS: Final = 10_000
"""Limit on one job's pods."""
MAX_NAME_LENGTH: Final = 240
"""Limit on a job's name: pod names append two numbers to it and have at most 253 characters."""

Object = dict[str, Any]


class QueueJob(Struct, frozen=True):
    """A QueueJob as decoded."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Raw = NOTHING
    status: Raw = NOTHING


class Task(Struct, frozen=True):
    """A task of a job: equal pods from one template."""

    replicas: int
    template: Object
    priority: int = 0


class Job(Struct, frozen=True):
    """A QueueJob.

    `templates` is a digest of the pod templates: when it changes, all pods are recreated. `reported` is the status in
    the object. `problems` keep its pods from being created or recreated; running pods are left alone.
    """

    uid: str
    namespace: str
    name: str
    revision: int = 0
    created: str = ""
    deleting: bool = False
    minimum: int = 0
    priority: int = 0
    tasks: tuple[Task, ...] = ()
    scheduling: Object = {}
    templates: str = ""
    status: JobStatus = JobStatus()
    reported: Object = {}
    problems: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The total number of pods."""
        return sum(task.replicas for task in self.tasks)

    @property
    def needed(self) -> int:
        """The number of pods that the job needs to run; at most its size."""
        return min(self.minimum, self.size)


def decode_queue_job(data: Encoded) -> QueueJob:
    """Decodes a QueueJob; fields with wrong types keep their defaults. Raises BadObject."""
    try:
        return _decoder.decode(data)
    except UNREADABLE:
        return QueueJob(**salvage(QueueJob, data)[0])


_decoder: Final = msgspec.json.Decoder(QueueJob)

QUEUE_JOBS: Final = ApiResource(
    "queuejobs.arbitrator.incubator.k8s.io",
    f"/apis/{API_VERSION}/{PLURAL}",
    QueueJob,
    decode_queue_job,
    optional=True,
)


def read_job(given: QueueJob, priorities: Priorities) -> Job:
    """Reads a QueueJob into the form that the controller uses."""
    metadata = given.metadata
    problems: list[str] = []
    if len(metadata.name) > MAX_NAME_LENGTH:
        problems.append(f"metadata.name has {len(metadata.name)} characters, but it may have at most {MAX_NAME_LENGTH}")
    spec = _object(given.spec, "spec", problems)
    scheduling = _mapping(spec.get("schedulingSpec"), "spec.schedulingSpec", problems)
    tasks = _tasks(spec, priorities, scheduling.get("priorityClassName"), problems)
    try:
        parse_node_selector(scheduling.get("nodeSelector"))
    except BadValue as error:
        problems.append(f"spec.schedulingSpec.nodeSelector is {error}")
    minimum = _whole(scheduling.get("minAvailable"), "spec.schedulingSpec.minAvailable", problems)
    pods = sum(task.replicas for task in tasks)
    if minimum > pods and not problems:
        problems.append(
            f"spec.schedulingSpec.minAvailable is {minimum}, but spec.taskSpecs has only {pods} pods, so the "
            "job can never run: lower it, or add replicas"
        )
    return Job(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        revision=metadata.revision,
        created=metadata.creation_timestamp or "",
        deleting=metadata.deletion_timestamp is not None,
        minimum=minimum,
        priority=_priority(scheduling, priorities),
        tasks=tasks,
        scheduling=scheduling,
        templates=_digest(tasks),
        status=read_status(given.status, (metadata.annotations or {}).get(RECORD, ""), metadata.uid),
        reported=_told(given.status),
        problems=tuple(problems),
    )


def _tasks(spec: Object, priorities: Priorities, class_name: object, problems: list[str]) -> tuple[Task, ...]:
    """Reads the tasks. `class_name` is the job's priority class, the default of its pods."""
    given = spec.get("taskSpecs")
    if not isinstance(given, list) or not given:
        problems.append("spec.taskSpecs is empty: add at least one task")
        return ()
    if len(given) > MAX_TASKS:
        problems.append(f"spec.taskSpecs has {len(given)} entries, but it may have at most {MAX_TASKS}")
        return ()
    shared = _match_labels(spec.get("selector"), "spec.selector", problems)
    tasks = tuple(_task(each, f"spec.taskSpecs[{place}]", shared, problems) for place, each in enumerate(given))
    tasks = tuple(
        replace(task, priority=_pod_priority(task.template["spec"], class_name, priorities)) for task in tasks
    )
    pods = sum(task.replicas for task in tasks)
    if pods > MAX_PODS:
        problems.append(f"spec.taskSpecs asks for {pods} pods, but a QueueJob may have at most {MAX_PODS}")
    return tasks


def _task(given: object, where: str, shared: Mapping[str, str], problems: list[str]) -> Task:
    task = _mapping(given, where, problems)
    template = _mapping(task.get("template"), f"{where}.template", problems)
    metadata = _mapping(template.get("metadata"), f"{where}.template.metadata", problems)
    spec = _mapping(template.get("spec"), f"{where}.template.spec", problems)
    if "spec" not in template:
        problems.append(f"{where}.template.spec is missing: say what the pods run")
    labels = _mapping(metadata.get("labels"), f"{where}.template.metadata.labels", problems)
    selected = {**shared, **_match_labels(task.get("selector"), f"{where}.selector", problems)}
    for key, value in selected.items():
        if labels.get(key, value) != value:
            problems.append(
                f"{where}.template.metadata.labels has {quoted(key)}: {quoted_value(labels[key])}, but the selector "
                f"requires {quoted(value)}: give them the same value"
            )
    complete = {**template, "metadata": {**metadata, "labels": {**selected, **labels}}, "spec": spec}
    replicas = _whole(task.get("replicas", 1), f"{where}.replicas", problems)
    return Task(replicas, complete)


def _match_labels(selector: object, where: str, problems: list[str]) -> dict[str, str]:
    """Returns the labels that pods need for the selector to match."""
    given = _mapping(selector, where, problems)
    if given.get("matchExpressions"):
        problems.append(f"{where}.matchExpressions is not supported: use matchLabels, which the pods get as labels")
    labels = _mapping(given.get("matchLabels"), f"{where}.matchLabels", problems)
    if not all(isinstance(value, str) for value in labels.values()):
        problems.append(f"{where}.matchLabels is {quoted_value(labels)}, which is not a map of labels")
        return {}
    return labels


def _priority(scheduling: Object, priorities: Priorities) -> int:
    """Returns the job's priority, as the scheduler will read it from the SchedulingSpec."""
    class_name, number = scheduling.get("priorityClassName"), scheduling.get("priority")
    if isinstance(class_name, str) and (value := priorities.by_name.get(class_name)) is not None:
        return value
    return number if isinstance(number, int) and not isinstance(number, bool) else priorities.default


def _pod_priority(spec: Object, class_name: object, priorities: Priorities) -> int:
    number = spec.get("priority")
    own = spec.get("priorityClassName") or (class_name if number is None else None)
    named = {"priority": number, "priorityClassName": own}
    try:
        return priorities.of_pod(msgspec.convert(named, PodSpec))
    except msgspec.ValidationError:  # the API server rejects such a pod with a reason
        return priorities.default


def _whole(value: object, where: str, problems: list[str]) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 2**31 - 1:
        problems.append(f"{where} is {quoted_value(value)}, which is not a whole number of pods")
        return 0
    return value


def _mapping(value: object, where: str, problems: list[str]) -> Object:
    if value is None:
        return {}
    if not isinstance(value, dict):
        problems.append(f"{where} is {quoted_value(value)}, which is not an object")
        return {}
    return value


def _object(raw: Raw, where: str, problems: list[str]) -> Object:
    content = bytes(raw)
    try:
        return _mapping(msgspec.json.decode(shallow(content)) if content else None, where, problems)
    except UNREADABLE as error:
        problems.append(f"{where} cannot be read: {error}")
        return {}


def _told(raw: Raw) -> Object:
    return _object(raw, "status", [])


def _digest(tasks: tuple[Task, ...]) -> str:
    """Returns a digest of the templates. Numbers of replicas do not change it."""
    content = msgspec.json.encode([task.template for task in tasks], order="deterministic")
    return blake2b(content, digest_size=8).hexdigest()
