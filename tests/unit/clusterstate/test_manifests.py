"""Manifests that nobody has validated: sizes that are far from those of the text, and values of other types."""

import json
from typing import Any

import pytest

from muster.clusterstate.manifest_size import MAX_SIZE, size_of
from muster.clusterstate.suite import SYSTEM_CLASSES, BadManifests, Edits, gangs_of, parse_manifests

LONG = "x" * 100_000
IDLE = {"parallelism": 0}
ANNOTATED = {"annotations": {"a": LONG}}
SPEC = {"schedulerName": "muster", "containers": [{"name": "main", "image": "i"}]}


def aliases(first: str, levels: int, use: str = "[*b{0}, *b{0}]") -> str:
    """Each level has the one before twice."""
    return f"a0: &b0 {first}\n" + "".join(f"a{n}: &b{n} {use.format(n - 1)}\n" for n in range(1, levels))


def read(text: str) -> Any:
    return gangs_of(parse_manifests(text, "file"), "ml", SYSTEM_CLASSES, Edits(topology="rack: pack"), "file")


def manifest(kind: str, **fields: Any) -> str:
    return json.dumps({"apiVersion": "v1", "kind": kind, "metadata": {"name": "w"}, **fields})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (aliases("1", 30), "more than 1000000 values, those of aliases included"),
        (aliases(LONG, 30), "more than 64000000 characters"),
        (aliases(f"{{? {LONG} : 1}}", 30), "more than 64000000 characters"),
        (aliases("{k: v}", 40, "{{<<: [*b{0}, *b{0}]}}"), "merges give a mapping more than 100000 keys"),
        ("- &b0 [1, 1]\n" + "".join(f"- &b{n} [*b{n - 1}, *b{n - 1}]\n" for n in range(1, 40)), "of type list is not"),
        ("&a {b: *a}", "more than 1000000 values"),
        ("[" * 5000, "file is not YAML"),
        ("a: 2001-13-41", "file is not YAML"),
    ],
    ids=["values", "characters", "keys", "merges", "list", "itself", "depth", "date"],
)
def test_documents_that_unfold_to_more_than_their_text_are_rejected(text: str, words: str) -> None:
    with pytest.raises(BadManifests, match=words):
        read(text)


@pytest.mark.parametrize(
    "text",
    [
        manifest("Job", spec={"parallelism": 10_000, "template": {"metadata": ANNOTATED, "spec": SPEC}}),
        manifest("Deployment", spec={"replicas": 10_000, "template": {"spec": {**SPEC, "volumes": [{}] * 10_000}}}),
    ],
    ids=["annotation", "volumes"],
)
def test_pods_that_are_too_large_together_are_rejected(text: str) -> None:
    with pytest.raises(BadManifests, match="w: with its pods the manifests are larger than 122 MiB"):
        read(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            manifest(
                "Job",
                apiVersion="batch.volcano.sh/v1alpha1",
                spec={"tasks": [{"name": "t", "replicas": 10**9, "template": {"spec": SPEC}}]},
            ),
            "Job w: more than 10000 pods",
        ),
        (
            manifest(
                "JobSet", spec={"replicatedJobs": [{"replicas": 10**9, "template": {"spec": {"parallelism": 0}}}]}
            ),
            "JobSet w: more than 10000 jobs",
        ),
    ],
    ids=["tasks", "jobs-without-pods"],
)
def test_numbers_of_pods_and_jobs_are_limited_before_they_are_made(text: str, words: str) -> None:
    with pytest.raises(BadManifests, match=words):
        read(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (manifest("Pod", metadata=[1]), 'Pod: metadata "list" is not an object'),
        (
            manifest("Pod", metadata={"name": "w", "annotations": 5}, spec=SPEC),
            'Pod w: annotations "5" is not an object',
        ),
        (manifest("Pod", spec=5), "Pod w: no spec"),
        (manifest("Pod"), "Pod w: no spec"),
        (manifest("Pod", spec={**SPEC, "priorityClassName": ["high"]}), "no PriorityClass is named"),
        (manifest("Job", spec={"template": {"metadata": 5, "spec": SPEC}}), 'Job w: metadata "5" is not an object'),
        (
            manifest("Job", spec={"template": {"metadata": {"labels": "x"}, "spec": SPEC}}),
            'Job w: labels "x" is not an object',
        ),
        (manifest("JobSet", spec={"replicatedJobs": 5}), 'JobSet w: replicatedJobs "5" is not a list of objects'),
        (manifest("JobSet", spec={"replicatedJobs": [5]}), 'JobSet w: replicatedJobs "list" is not a list of objects'),
        ('{kind: List, items: "x"}', 'file: List: items "x" is not a list of objects'),
        ("{apiVersion: v1, kind: Pod, metadata: {name: w}, spec: {? [a, b] : 1}}", "file is not YAML"),
        ("{apiVersion: v1, kind: Pod, metadata: {name: w}, spec: {containers: [], null: 1}}", "Pod ml/w: "),
    ],
)
def test_values_of_other_types_are_named(text: str, words: str) -> None:
    with pytest.raises(BadManifests) as raised:
        read(text)
    assert words in str(raised.value)


def test_ten_thousand_ordinary_pods_are_read() -> None:
    facts = read(manifest("Job", apiVersion="batch/v1", spec={"parallelism": 10_000, "template": {"spec": SPEC}}))
    assert len(facts.pods) == 10_000


def test_aliases_and_merges_of_ordinary_size_are_read() -> None:
    text = (
        "{apiVersion: v1, kind: Pod, metadata: {name: w}, common: &c {name: main, image: i},"
        " spec: {schedulerName: muster, containers: [{<<: *c, image: j}]}}"
    )
    [pod] = read(text).pods
    assert (pod.namespace, pod.name) == ("ml", "w")


def test_the_size_of_a_value_is_at_least_that_of_its_text() -> None:
    assert size_of({"key": ["ab", b"cd", 5]}) > len("key") + len("abcd")
    shared = ["x" * 1000] * 10
    assert size_of([shared, shared]) > 20_000
    assert size_of([LONG] * 10_000) > MAX_SIZE
