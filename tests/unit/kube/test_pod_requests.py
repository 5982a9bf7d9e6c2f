"""Effective requests, as the kubelet and kube-scheduler compute them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.kube.objects import container, container_status, pod, sidecar
from muster.kube.pod_class import pod_class, read_class
from muster.kube.pod_requests import MAX_PROBLEMS, MAX_RESOURCES

Mi = 2**20


def requests_of(spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, int]:
    requests = dict(pod_class(pod(spec=spec, status=status)).requests)
    assert requests.pop("pods") == 1
    return requests


CASES: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "nothing asked": ({"containers": [container()]}, {}),
    "limits alone": ({"containers": [container(resources={"limits": {"cpu": "1"}})]}, {}),
    "empty and null resources": (
        {
            "containers": [
                container(resources={}),
                container("b", resources=None),
                container("c", resources={"requests": None}),
            ]
        },
        {},
    ),
    "containers add up": (
        {
            "containers": [
                container("a", {"cpu": "500m", "memory": "1Gi"}),
                container("b", {"cpu": "1", "memory": "512Mi"}),
            ]
        },
        {"cpu": 1500, "memory": 1536 * Mi},
    ),
    "cpu is rounded per container, other resources once, after adding": (
        {
            "containers": [
                container("a", {"cpu": "500u", "memory": "500m"}),
                container("b", {"cpu": "500u", "memory": "500m"}),
            ]
        },
        {"cpu": 2, "memory": 1},
    ),
    "zero is no request": (
        {"containers": [container(requests={"cpu": "0", "memory": "0Mi", "nvidia.com/gpu": "0"})]},
        {},
    ),
    "unknown resources are kept": (
        {
            "containers": [
                container(requests={"example.com/widget": "3", "hugepages-2Mi": "4Mi", "ephemeral-storage": "1G"})
            ]
        },
        {"example.com/widget": 3, "hugepages-2Mi": 4 * Mi, "ephemeral-storage": 10**9},
    ),
    "numbers without quotes": (
        {"containers": [container(requests={"cpu": 2, "memory": 1.5})]},
        {"cpu": 2000, "memory": 2},
    ),
    "a smaller init container costs nothing": (
        {"containers": [container(requests={"cpu": "2"})], "initContainers": [container("i", {"cpu": "1"})]},
        {"cpu": 2000},
    ),
    "a larger init container counts, per resource": (
        {
            "containers": [container(requests={"cpu": "2", "memory": "1Mi"})],
            "initContainers": [container("i", {"cpu": "1", "memory": "5Mi"}), container("j", {"cpu": "3"})],
        },
        {"cpu": 3000, "memory": 5 * Mi},
    ),
    "sidecars add to containers": (
        {"containers": [container(requests={"cpu": "2"})], "initContainers": [sidecar("s", {"cpu": "1"})]},
        {"cpu": 3000},
    ),
    "a sidecar adds to init containers after it": (
        {
            "containers": [container(requests={"cpu": "1"})],
            "initContainers": [sidecar("s", {"cpu": "1"}), container("i", {"cpu": "4"})],
        },
        {"cpu": 5000},
    ),
    "but not to those before it": (
        {
            "containers": [container(requests={"cpu": "1"})],
            "initContainers": [container("i", {"cpu": "4"}), sidecar("s", {"cpu": "1"})],
        },
        {"cpu": 4000},
    ),
    "sidecars add up in order": (
        {
            "containers": [container(requests={"cpu": "1"})],
            "initContainers": [
                sidecar("s", {"cpu": "1"}),
                container("i", {"cpu": "2"}),
                sidecar("t", {"cpu": "2"}),
                container("j", {"cpu": "5"}),
            ],
        },
        {"cpu": 8000},
    ),
    "other restart policies make no sidecar": (
        {
            "containers": [container(requests={"cpu": "2"})],
            "initContainers": [container("i", {"cpu": "1"}, restartPolicy="OnFailure")],
        },
        {"cpu": 2000},
    ),
    "overhead comes on top": (
        {"containers": [container(requests={"cpu": "2"})], "overhead": {"cpu": "250m", "memory": "120Mi"}},
        {"cpu": 2250, "memory": 120 * Mi},
    ),
    "overhead comes on top of init containers too": (
        {
            "containers": [container(requests={"cpu": "1"})],
            "initContainers": [container("i", {"cpu": "2"})],
            "overhead": {"cpu": "1"},
        },
        {"cpu": 3000},
    ),
    "pod level replaces what it names": (
        {
            "containers": [container(requests={"cpu": "2", "memory": "1Mi", "nvidia.com/gpu": "1"})],
            "resources": {"requests": {"cpu": "500m"}},
        },
        {"cpu": 500, "memory": Mi, "nvidia.com/gpu": 1},
    ),
    "pod level knows cpu, memory and hugepages alone": (
        {
            "containers": [container(requests={"cpu": "1", "nvidia.com/gpu": "1"})],
            "resources": {
                "requests": {"memory": "8Mi", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "5", "ephemeral-storage": "1"}
            },
        },
        {"cpu": 1000, "memory": 8 * Mi, "hugepages-2Mi": 4 * Mi, "nvidia.com/gpu": 1},
    ),
    "overhead comes on top of pod level": (
        {
            "containers": [container(requests={"cpu": "1"})],
            "resources": {"requests": {"cpu": "4"}},
            "overhead": {"cpu": "1"},
        },
        {"cpu": 5000},
    ),
    "pod level limits alone change nothing": (
        {"containers": [container(requests={"cpu": "1"})], "resources": {"limits": {"cpu": "4"}}},
        {"cpu": 1000},
    ),
    "nobody asks for pods": ({"containers": [container(requests={"pods": "7", "cpu": "1"})]}, {"cpu": 1000}),
}


@pytest.mark.parametrize(("spec", "expected"), CASES.values(), ids=CASES.keys())
def test_effective_requests(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert requests_of(spec) == expected


INFEASIBLE = [
    {"type": "Ready", "status": "True"},
    {"type": "PodResizePending", "status": "True", "reason": "Infeasible"},
]
DEFERRED = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]

RESIZES: dict[str, tuple[dict[str, Any], int]] = {
    "no status yet": ({}, 2000),
    "status agrees": ({"containerStatuses": [container_status(allocated={"cpu": "2"}, actual={"cpu": "2"})]}, 2000),
    "shrinks, not done yet": (
        {"containerStatuses": [container_status(allocated={"cpu": "2"}, actual={"cpu": "5"})]},
        5000,
    ),
    "shrinks, not allocated yet": ({"containerStatuses": [container_status(allocated={"cpu": "4"})]}, 4000),
    "grows, not allocated yet": (
        {"containerStatuses": [container_status(allocated={"cpu": "1"}, actual={"cpu": "1"})]},
        2000,
    ),
    "grows, put off": (
        {"conditions": DEFERRED, "containerStatuses": [container_status(allocated={"cpu": "1"}, actual={"cpu": "1"})]},
        2000,
    ),
    "can never grow": (
        {
            "conditions": INFEASIBLE,
            "containerStatuses": [container_status(allocated={"cpu": "1"}, actual={"cpu": "1"})],
        },
        1000,
    ),
    "status of a container that is not in the spec": (
        {"containerStatuses": [container_status("other", allocated={"cpu": "9"})]},
        2000,
    ),
    "unreadable conditions": ({"conditions": '"PodResizePending"', "containerStatuses": [container_status()]}, 2000),
}


@pytest.mark.parametrize(("status", "milli_cpu"), RESIZES.values(), ids=RESIZES.keys())
def test_resize_in_place_counts_the_larger_requests(status: dict[str, Any], milli_cpu: int) -> None:
    spec = {"nodeName": "node-0", "containers": [container(requests={"cpu": "2"})]}
    assert requests_of(spec, status) == {"cpu": milli_cpu}


def test_resize_of_a_sidecar_counts() -> None:
    spec = {
        "nodeName": "node-0",
        "containers": [container(requests={"cpu": "1"})],
        "initContainers": [sidecar("proxy", {"cpu": "1"})],
    }
    status = {
        "containerStatuses": [container_status(allocated={"cpu": "1"})],
        "initContainerStatuses": [container_status("proxy", allocated={"cpu": "3"})],
    }
    assert requests_of(spec, status) == {"cpu": 4000}


def test_pod_level_resize_excludes_the_overhead_in_its_status() -> None:
    spec = {
        "nodeName": "node-0",
        "containers": [container(requests={"cpu": "1"})],
        "resources": {"requests": {"cpu": "2"}},
        "overhead": {"cpu": "1"},
    }
    status = {
        "containerStatuses": [container_status(allocated={"cpu": "1"})],
        "allocatedResources": {"cpu": "4"},
        "resources": {"requests": {"cpu": "6"}},
    }
    assert requests_of(spec, status) == {"cpu": 6000}
    assert requests_of(spec, {**status, "conditions": INFEASIBLE}) == {"cpu": 6000}
    assert requests_of(spec, {**status, "resources": {}, "conditions": INFEASIBLE}) == {"cpu": 4000}


UNREADABLE: dict[str, tuple[dict[str, Any], tuple[str, ...], dict[str, int]]] = {
    "a request": (
        {"containers": [container("main", {"cpu": "two", "memory": "1Mi"})]},
        ('containers "main"', '"cpu"', '"two"', "not a quantity"),
        {"memory": Mi},
    ),
    "a negative request": (
        {"containers": [container(requests={"cpu": "-1"})]},
        ('"cpu"', '"-1"', "less than zero"),
        {},
    ),
    "an init container's request": (
        {"initContainers": [container("setup", {"cpu": "1KB"})], "containers": [container(requests={"cpu": "1"})]},
        ('initContainers "setup"', '"1KB"'),
        {"cpu": 1000},
    ),
    "resources of another type": (
        {"containers": [container(resources=["cpu"])]},
        ('containers "main"', '"["cpu"]"'),
        {},
    ),
    "requests of another type": (
        {"containers": [container(requests="much")]},
        ("much",),
        {},
    ),
    "a quantity of another type": (
        {"containers": [container(requests={"cpu": {"a": 1}, "memory": True})]},
        ('"{"a":1}"', '"true"'),
        {},
    ),
    "overhead": (
        {"containers": [container(requests={"cpu": "1"})], "overhead": {"cpu": "lots"}},
        ("overhead", '"lots"'),
        {"cpu": 1000},
    ),
    "pod level": (
        {"containers": [container(requests={"cpu": "1"})], "resources": {"requests": {"cpu": "?"}}},
        ("resources.requests", '"?"'),
        {"cpu": 1000},
    ),
}


@pytest.mark.parametrize(("spec", "words", "requests"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_malformed_quantities_are_reported_once(
    spec: dict[str, Any], words: tuple[str, ...], requests: dict[str, int]
) -> None:
    read = read_class(pod(spec=spec))
    for word in words:
        assert read.problem.count(word) == 1
    assert dict(read.pod_class.requests) == {**requests, "pods": 1}


def test_huge_value_is_truncated_in_messages() -> None:
    read = read_class(pod(spec={"containers": [container(requests={"cpu": "9" * 9 + "x" * 1_000_000})]}))
    assert '"999999999xxx' in read.problem
    assert len(read.problem) < 400


def test_resources_beyond_the_limit_are_a_problem_and_do_not_count() -> None:
    names = {f"example.com/r{number:05}": "1" for number in range(10_000)}
    spec = {"containers": [container(requests={"cpu": "1", "memory": "1Gi", **names})]}
    asked = requests_of(spec)
    assert (len(asked), asked["cpu"], asked["memory"]) == (MAX_RESOURCES, 1000, 2**30)
    problem = read_class(pod(spec=spec)).problem
    assert problem == (
        "it requests 10002 different resources, but at most 100 are considered; "
        'the first that is not is "example.com/r00098"'
    )


def test_extended_requests_beyond_the_limit_are_left_out() -> None:
    names = {f"example.com/r{number:05}": "1" for number in range(5000)}
    extended = read_class(pod(spec={"containers": [container(requests=names)]})).pod_class.extended
    assert [each.resource for each in extended] == [f"example.com/r{number:05}" for number in range(MAX_RESOURCES)]


def test_extended_requests_of_many_containers_are_a_problem() -> None:
    containers = [container(f"c{number}", {"example.com/gpu": "1"}) for number in range(101)]
    read = read_class(pod(spec={"containers": containers}))
    assert len(read.pod_class.extended) == 100
    assert read.problem == ("its containers have 101 requests for extended resources, but at most 100 are considered")


def test_few_of_many_problems_are_named() -> None:
    names = {f"example.com/r{number}": "many" for number in range(2000)}
    problem = read_class(pod(spec={"containers": [container(requests=names)]})).problem
    assert problem.count("example.com/r") == MAX_PROBLEMS


amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 9).map(str), max_size=3)


@given(
    containers=st.lists(amounts, min_size=1, max_size=4),
    init_containers=st.lists(st.tuples(st.booleans(), amounts), max_size=4),
)
def test_requests_cover_every_stage_of_the_start_exactly(
    containers: list[dict[str, str]], init_containers: list[tuple[bool, dict[str, str]]]
) -> None:
    """Replay the pod's start: each init container with the sidecars before it, then all containers and sidecars."""
    asked = requests_of(
        {
            "containers": [container(f"c{i}", each) for i, each in enumerate(containers)],
            "initContainers": [
                (sidecar if stays else container)(f"i{i}", each) for i, (stays, each) in enumerate(init_containers)
            ],
        }
    )
    for resource in ("cpu", "memory", "nvidia.com/gpu"):
        factor = 1000 if resource == "cpu" else 1
        beside = peak = 0
        for stays, each in init_containers:
            own = int(each.get(resource, "0")) * factor
            peak = max(peak, beside + own)
            beside += own if stays else 0
        peak = max(peak, beside + sum(int(each.get(resource, "0")) * factor for each in containers))
        assert asked.get(resource, 0) == peak
