"""Formats: quantities, durations, JSONPath, the STATUS column, JSON patches, protobuf."""

from typing import Any

import pytest

from muster.localcluster.apiserver.clock import age, duration, parse_time
from muster.localcluster.apiserver.kubectl_jsonpath import find_all
from muster.localcluster.apiserver.patch import BadPatch, apply_json_patch
from muster.localcluster.apiserver.pod_table import PODS
from muster.localcluster.apiserver.protobuf import UnknownField, decode_protobuf
from muster.localcluster.apiserver.quantity_format import canonical


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("1.5Gi", "1536Mi"),
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1000", "1k"),
        ("1024Ki", "1Mi"),
        ("1023Ki", "1023Ki"),
        ("0.1Ki", "102400m"),
        ("1e3", "1e3"),
        ("100e-3", "100e-3"),
        ("0", "0"),
        ("0Gi", "0"),
        ("-1500m", "-1500m"),
        ("0.0000001", "100n"),
        ("12E", "9223372036854775807"),
    ],
)
def test_quantities_are_returned_in_canonical_form(text: str, form: str) -> None:
    assert canonical(text) == form


@pytest.mark.parametrize("text", ["", "1 Gi", "much", "1.2.3", "Gi"])
def test_invalid_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match the regular expression"):
        canonical(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.9, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 120, "3h2m"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (50 * 3600, "2d2h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
    ],
)
def test_durations_in_the_format_of_kubectl(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_age_of_an_invalid_time_is_unknown() -> None:
    assert age(None, 0.0) == age("yesterday", 0.0) == "<unknown>"
    assert age("1970-01-01T00:00:00Z", 5.0) == "5s"
    assert parse_time("1970-01-01T00:00:01.500000Z") == 1.5


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.minimum", [3]),
        ("{.spec.minimum}", [3]),
        (".spec.missing.deep", []),
        (".items[1].name", ["b"]),
        (".items[*].name", ["a", "b"]),
        ('.items[?(@.name=="b")].size', [2]),
        (r".labels.example\.com/rack", ["r1"]),
        (".labels['example.com/rack']", ["r1"]),
    ],
)
def test_jsonpath_of_kubectl(path: str, found: list[Any]) -> None:
    items = [{"name": "a", "size": 1}, {"name": "b", "size": 2}]
    document = {"spec": {"minimum": 3}, "items": items, "labels": {"example.com/rack": "r1"}}

    assert find_all(path, document) == found


@pytest.mark.parametrize(
    ("pod", "word"),
    [
        ({"status": {"phase": "Pending"}}, "Pending"),
        ({"status": {"phase": "Pending"}, "spec": {"schedulingGates": [{"name": "a"}]}}, "SchedulingGated"),
        ({"status": {"phase": "Failed", "reason": "OutOfcpu"}}, "OutOfcpu"),
        ({"status": {"phase": "Running"}, "metadata": {"deletionTimestamp": "x"}}, "Terminating"),
        ({"status": {"phase": "Succeeded"}, "metadata": {"deletionTimestamp": "x"}}, "Succeeded"),
        (
            {
                "status": {
                    "phase": "Running",
                    "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
                }
            },
            "CrashLoopBackOff",
        ),
        (
            {
                "status": {
                    "phase": "Succeeded",
                    "containerStatuses": [{"state": {"terminated": {"reason": "Completed"}}}],
                }
            },
            "Completed",
        ),
        (
            {"status": {"phase": "Pending", "initContainerStatuses": [{"state": {"running": {}}}]}},
            "Init:0/1",
        ),
    ],
)
def test_status_column_of_pods(pod: dict[str, Any], word: str) -> None:
    spec = {"containers": [{}], "initContainers": [{}]} | pod.get("spec", {})
    pod = {"metadata": {"name": "a"} | pod.get("metadata", {}), "spec": spec, "status": pod["status"]}

    assert PODS.cells(pod, 0.0)[2] == word


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ([{"op": "add", "path": "/list/1", "value": "x"}], {"a": 1, "list": ["p", "x", "q"]}),
        ([{"op": "add", "path": "/list/-", "value": "x"}], {"a": 1, "list": ["p", "q", "x"]}),
        ([{"op": "remove", "path": "/list/0"}], {"a": 1, "list": ["q"]}),
        ([{"op": "replace", "path": "/a", "value": {"b": 2}}], {"a": {"b": 2}, "list": ["p", "q"]}),
        ([{"op": "move", "from": "/a", "path": "/c"}], {"c": 1, "list": ["p", "q"]}),
        ([{"op": "copy", "from": "/list", "path": "/c"}], {"a": 1, "list": ["p", "q"], "c": ["p", "q"]}),
        ([{"op": "test", "path": "/a", "value": 1}, {"op": "add", "path": "", "value": {}}], {}),
        ([{"op": "test", "path": "/b", "value": None}, {"op": "remove", "path": "/list"}], {"a": 1}),
    ],
)
def test_json_patches(patch: list[Any], expected: Any) -> None:
    assert apply_json_patch({"a": 1, "list": ["p", "q"]}, patch) == expected


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "test", "path": "/a", "value": 2}],
        [{"op": "test", "path": "/a", "value": None}],
        [{"op": "test", "path": "/b/c", "value": None}],
        [{"op": "test", "path": "/b"}],
        [{"op": "remove", "path": "/b"}],
        [{"op": "remove", "path": "/list/2"}],
        [{"op": "add", "path": "/b/c", "value": 1}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "add", "path": "/a"}],
        [{"op": "dance", "path": "/a"}],
        [{"path": 5}],
        {"op": "remove"},
    ],
)
def test_invalid_json_patches(patch: Any) -> None:
    with pytest.raises(BadPatch):
        apply_json_patch({"a": 1, "list": ["p", "q"]}, patch)


@pytest.mark.parametrize("body", [b"", b"{}", b"k8s\0\x0a", b"k8s\0\xff", b"k8s\0\x0a\x05\x12\x03Foo", b"k8s\0\x09"])
def test_invalid_protobuf_messages(body: bytes) -> None:
    with pytest.raises(ValueError):
        decode_protobuf(body)


def test_an_unknown_protobuf_field_is_an_error() -> None:
    # Namespace with field 15
    with pytest.raises(UnknownField, match="field 15 of Namespace"):
        decode_protobuf(b"k8s\0\x0a\x0b\x12\x09Namespace\x12\x02\x7a\x00")
