"""Reading valid and invalid QueueJobs, and the manifests of their pods."""

from typing import Any

import msgspec
import pytest

from builders.gangs.queue_jobs import queue_job, read, template
from muster.kube.objects import decode_pod
from muster.lifecycle.queue_jobs.job import Job
from muster.lifecycle.queue_jobs.manifests import job_pod, merge_patch, pod_manifest, scheduling_spec_manifest
from muster.lifecycle.queue_jobs.plan import Slot
from muster.lifecycle.queue_jobs.status import JobStatus

Object = dict[str, Any]


def broken(**spec: Any) -> Job:
    written = queue_job("train", (1, template()), minimum=1)
    return read({**written, "spec": {**written["spec"], **spec}})


class TestReading:
    def test_a_job_is_read(self) -> None:
        scheduling = {"priorityClassName": "high", "nodeSelector": {"a": "b"}}
        job = read(queue_job("train", (2, template()), (3, template()), minimum=4, scheduling=scheduling))
        assert (job.minimum, job.needed, job.size, job.priority, job.problems) == (4, 4, 5, 100, ())
        assert job.scheduling == {"minAvailable": 4, **scheduling}

    def test_templates_have_the_priority_that_their_pods_get(self) -> None:
        tasks = (template(), template(priorityClassName="low"), template(priority=7))
        job = read(queue_job("train", *((1, each) for each in tasks), scheduling={"priorityClassName": "high"}))
        assert [task.priority for task in job.tasks] == [100, 1, 7]

    def test_its_templates_digest_does_not_depend_on_how_many_pods_there_are(self) -> None:
        one, other = (read(queue_job("train", (n, template()), minimum=n)) for n in (1, 5))
        assert one.templates == other.templates != read(queue_job("train", (1, template(cpu="2")))).templates

    @pytest.mark.parametrize(
        ("spec", "words"),
        [
            ({"taskSpecs": None}, "spec.taskSpecs is empty: add at least one task"),
            ({"taskSpecs": "many"}, "spec.taskSpecs is empty"),
            ({"taskSpecs": [{}] * 101}, "spec.taskSpecs has 101 entries, but it may have at most 100"),
            ({"taskSpecs": [7]}, 'spec.taskSpecs[0] is "7", which is not an object'),
            ({"taskSpecs": [{"replicas": 1}]}, "spec.taskSpecs[0].template.spec is missing"),
            ({"taskSpecs": [{"replicas": "x", "template": template()}]}, 'spec.taskSpecs[0].replicas is "x"'),
            ({"taskSpecs": [{"replicas": 10_001, "template": template()}]}, "asks for 10001 pods"),
            ({"taskSpecs": [{"template": {"spec": {}, "metadata": {"labels": []}}}]}, "metadata.labels is"),
            ({"selector": {"matchExpressions": [{"key": "a"}]}}, "spec.selector.matchExpressions is not supported"),
            ({"selector": {"matchLabels": {"a": 1}}}, "which is not a map of labels"),
            ({"schedulingSpec": "soon"}, 'spec.schedulingSpec is "soon", which is not an object'),
            ({"schedulingSpec": {"minAvailable": "all"}}, 'spec.schedulingSpec.minAvailable is "all"'),
            ({"schedulingSpec": {"minAvailable": 2}}, "minAvailable is 2, but spec.taskSpecs has only 1 pods"),
            ({"schedulingSpec": {"nodeSelector": ["a"]}}, "spec.schedulingSpec.nodeSelector is"),
        ],
    )
    def test_problems_name_field_and_value(self, spec: Object, words: str) -> None:
        assert any(words in problem for problem in broken(**spec).problems)

    def test_a_name_too_long_for_pod_names_is_a_problem(self) -> None:
        [problem] = read(queue_job("a" * 241, (1, template()))).problems
        assert problem == "metadata.name has 241 characters, but it may have at most 240"

    @pytest.mark.parametrize("annotation", ["", "{", "[]", '{"job": "uid-job"}'])
    def test_a_malformed_record_counts_as_absent(self, annotation: str) -> None:
        written = queue_job("train", (1, template()))
        written["metadata"]["annotations"] = {"muster.dev/queue-job-record": annotation}
        assert read(written, status={"running": "x"}).status == JobStatus()

    def test_a_record_copied_from_another_job_counts_as_absent(self) -> None:
        status = JobStatus(incarnation=7, completed=3, templates="t")
        written = queue_job("train", (1, template()))
        written["metadata"]["annotations"] = {"muster.dev/queue-job-record": status.record("uid-other")}
        assert read(written).status == JobStatus()
        written["metadata"]["annotations"] = {"muster.dev/queue-job-record": status.record("uid-job")}
        assert read(written).status == status


class TestBodies:
    def test_a_pod_is_known_again(self) -> None:
        job = read(queue_job("train", (2, template()), minimum=1), status={})
        body = pod_manifest(job, Slot(0, 1), "muster")
        body["metadata"] |= {"uid": "uid-pod", "resourceVersion": "5"}
        known = job_pod(decode_pod(msgspec.json.encode(body)))
        assert known is not None
        assert known[0] == "uid-job"
        assert (known[1].name, known[1].task, known[1].index) == ("train-0-1", 0, 1)

    def test_others_pods_are_not_taken_for_ours(self) -> None:
        metadata: Object = {"name": "x", "uid": "u", "resourceVersion": "5"}
        metadata["ownerReferences"] = [
            {"apiVersion": "other.io/v1", "kind": "QueueJob", "name": "train", "uid": "uid-job", "controller": True}
        ]
        assert job_pod(decode_pod(msgspec.json.encode({"metadata": metadata}))) is None

    def test_values_of_the_template_are_kept(self) -> None:
        own = template(schedulerName="other", priorityClassName="low")
        job = read(queue_job("train", (1, own), scheduling={"priorityClassName": "high"}))
        spec = pod_manifest(job, Slot(0, 0), "muster")["spec"]
        assert (spec["schedulerName"], spec["priorityClassName"]) == ("other", "low")
        bare = pod_manifest(read(queue_job("train", (1, template()))), Slot(0, 0), "muster")["spec"]
        assert (bare["schedulerName"], "priorityClassName" in bare) == ("muster", False)

    def test_labels_that_its_selectors_ask_for_are_on_its_pods(self) -> None:
        job = read(queue_job("train", (1, template(labels={"a": "1"})), selector={"matchLabels": {"b": "2"}}))
        labels = pod_manifest(job, Slot(0, 0), "muster")["metadata"]["labels"]
        assert labels == {"a": "1", "b": "2", "muster.dev/queue-job": "train"}

    def test_its_spec_is_controlled_by_it(self) -> None:
        body = scheduling_spec_manifest(read(queue_job("train", (1, template()), minimum=1)))
        assert body["metadata"]["name"] == "train"
        [owner] = body["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == ("uid-job", True)

    @pytest.mark.parametrize(
        ("before", "after", "patch"),
        [
            ({}, {}, {}),
            ({"a": 1}, {"a": 1}, {}),
            ({"a": 1}, {"a": 2, "b": {"c": "d"}}, {"a": 2, "b": {"c": "d"}}),
            ({"a": 1, "s": {"x": "1", "y": "2"}}, {"s": {"y": "3"}}, {"a": None, "s": {"x": None, "y": "3"}}),
        ],
    )
    def test_a_merge_patch_turns_one_object_into_the_other(self, before: Object, after: Object, patch: Object) -> None:
        assert merge_patch(before, after) == patch
