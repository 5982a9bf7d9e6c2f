"""Claims for extended resources that a DeviceClass backs: requests and mappings as kube-scheduler writes them."""

import msgspec
import pytest

from muster.devices.extended_resources import IMPLICIT, extended_claim, is_extended
from muster.devices.facts import DeviceClass
from muster.gangs.facts import ExtendedRequest

GPU = "nvidia.com/gpu"
CLASSES = {GPU: DeviceClass("gpu"), "example.com/nic": DeviceClass("nic")}


def container(index: int, amount: int, resource: str = GPU, *, starts: bool = False) -> ExtendedRequest:
    return ExtendedRequest(f"c{index}", resource, f"container-{index}-request-0", index, amount, starts)


def counts(*requested: ExtendedRequest, backed: tuple[str, ...] = (GPU,)) -> dict[str, int]:
    """Devices by request."""
    found = extended_claim(requested, backed, CLASSES)
    assert found is not None
    return {each.name: each.alternatives[0].count for each in found.requests}


def used(*requested: ExtendedRequest) -> list[tuple[str, str]]:
    """Containers and the requests that they use."""
    found = extended_claim(requested, (GPU,), CLASSES)
    assert found is not None
    return [(each.container, each.request) for each in found.mappings]


@pytest.mark.parametrize(
    ("resource", "extended"),
    [
        (GPU, True),
        (f"{IMPLICIT}gpu", True),
        ("cpu", False),
        ("hugepages-2Mi", False),
        ("example.kubernetes.io/x", False),
        ("requests.nvidia.com/gpu", False),
        ("devices--gpu", False),
    ],
)
def test_extended_resources_have_a_domain_of_their_own(resource: str, extended: bool) -> None:
    assert is_extended(resource) is extended


def test_each_container_has_a_request() -> None:
    assert counts(container(0, 2), container(1, 3)) == {"container-0-request-0": 2, "container-1-request-0": 3}
    assert used(container(0, 2), container(1, 3)) == [("c0", "container-0-request-0"), ("c1", "container-1-request-0")]


def test_only_resources_that_the_node_offers_as_devices_are_requested() -> None:
    pod = (container(0, 2), container(1, 1, "example.com/nic"))
    assert counts(*pod) == {"container-0-request-0": 2}
    assert counts(*pod, backed=("example.com/nic",)) == {"container-1-request-0": 1}
    assert extended_claim(pod, (), CLASSES) is None
    assert extended_claim((), (GPU,), CLASSES) is None


def test_init_containers_use_devices_of_later_containers() -> None:
    pod = (container(0, 3, starts=True), container(1, 2), container(2, 2))
    assert counts(*pod) == {"container-1-request-0": 2, "container-2-request-0": 2}
    assert ("c0", "container-1-request-0") in used(*pod)
    assert ("c0", "container-2-request-0") in used(*pod)


def test_the_largest_further_request_of_init_containers_is_enough_for_all() -> None:
    pod = (container(0, 3, starts=True), container(1, 5, starts=True), container(2, 2))
    assert counts(*pod) == {"container-1-request-0": 3, "container-2-request-0": 2}
    assert used(*pod) == [
        ("c2", "container-2-request-0"),
        ("c0", "container-2-request-0"),
        ("c0", "container-1-request-0"),
        ("c1", "container-2-request-0"),
        ("c1", "container-1-request-0"),
    ]


def test_an_init_container_does_not_use_devices_of_sidecars_before_it() -> None:
    assert counts(container(0, 2), container(1, 1, starts=True)) == {
        "container-0-request-0": 2,
        "container-1-request-0": 1,
    }


def test_a_claim_has_a_class_of_each_resource() -> None:
    found = extended_claim((container(0, 2),), (GPU,), CLASSES)
    assert found is not None
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
    requests = [{"name": "container-0-request-0", "exactly": exactly}]
    assert msgspec.json.decode(found.spec_json()) == {"devices": {"requests": requests}}
    assert found.fits(["container-0-request-0"] * 2)
    assert not found.fits(["container-0-request-0"])


def test_a_resource_that_no_class_backs_any_more_is_named() -> None:
    found = extended_claim((container(0, 2),), (GPU,), {})
    assert found is not None
    assert found.problem == f"no DeviceClass backs the extended resource {GPU}"


def test_a_pod_with_too_many_requests_is_rejected() -> None:
    found = extended_claim([container(index, 1) for index in range(33)], (GPU,), CLASSES)
    assert found is not None
    assert "at most 32" in found.problem
