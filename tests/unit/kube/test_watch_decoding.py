"""Decoding of lists and watch events; a malformed object does not hide the others."""

import json
from typing import Any

import pytest

from muster.kube.api_resources import NODES, PODS
from muster.kube.malformed_objects import MalformedObjects, Reason, Unreadable
from muster.kube.object_changes import Removed
from muster.kube.objects import MAX_LABELS, BadObject, BadResourceVersion, Node, Pod
from muster.kube.watch_decoding import Bookmark, UnusualPage, WatchDecoder, WatchStatus

pods = WatchDecoder(PODS, MalformedObjects(PODS.kind))


def line(kind: str, content: Any) -> bytes:
    return json.dumps({"type": kind, "object": content}).encode()


def pod(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "7"}, **more}


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED"])
def test_added_or_modified_object(kind: str) -> None:
    event = pods.event(line(kind, pod(spec={"nodeName": "n", "unknown": [1]})))
    assert isinstance(event, Pod)
    assert (event.metadata.name, event.spec.node_name) == ("a", "n")


def test_deleted_object() -> None:
    assert pods.event(line("DELETED", pod())) == Removed("uid-a", 7)


def test_deleted_malformed_object() -> None:
    assert pods.event(line("DELETED", pod(spec={"nodeName": 5}))) == Removed("uid-a", 7)


def test_bookmark() -> None:
    content = {"metadata": {"resourceVersion": "12", "creationTimestamp": None}, "spec": {"containers": None}}
    assert pods.event(line("BOOKMARK", content)) == Bookmark(12)


def test_error_event() -> None:
    content = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old", "metadata": {}}
    assert pods.event(line("ERROR", content)) == WatchStatus(410, "Expired", "too old")


@pytest.mark.parametrize(
    "spec", [{"nodeName": 5}, {"containers": "none"}, {"priority": "high"}, {"priority": 2**80}, "nothing", [], 7]
)
def test_pod_with_fields_of_wrong_types_is_decoded_partly(spec: Any) -> None:
    event = pods.event(line("ADDED", pod(spec=spec)))
    assert isinstance(event, Pod)
    assert event.metadata.uid == "uid-a"
    assert event.problem


def test_node_with_fields_of_wrong_types_is_decoded_partly() -> None:
    event = WatchDecoder(NODES, MalformedObjects(NODES.kind)).event(line("ADDED", pod("n", spec={"taints": "all"})))
    assert isinstance(event, Node)
    assert (event.metadata.name, bool(event.problem)) == ("n", True)


@pytest.mark.parametrize(
    "junk", [b"", b"<html>", b"[]", b"7", b"\xff\xfe", b'{"type":"ADDED"}', line("EXPLODED", pod()), line("DELETED", 5)]
)
def test_line_that_is_not_an_event_is_an_error(junk: bytes) -> None:
    with pytest.raises(BadObject):
        pods.event(junk)


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (5, Reason.NOT_AN_OBJECT),
        ({}, Reason.IDENTITY),
        ({"metadata": "none"}, Reason.IDENTITY),
        ({"metadata": {"name": "a", "uid": 7, "resourceVersion": "7"}}, Reason.IDENTITY),
        ({"metadata": {"uid": "uid-a", "resourceVersion": "7"}}, Reason.IDENTITY),
        ({"metadata": {"name": "a", "uid": "uid-a"}}, Reason.REVISION),
        ({"metadata": {"name": "a", "uid": "uid-a", "resourceVersion": "9" * 5000}}, Reason.REVISION),
        ({"metadata": {"name": "a", "uid": "uid-a", "resourceVersion": str(2**63)}}, Reason.REVISION),
        ({"metadata": {"name": "a", "uid": "uid-a", "resourceVersion": "x"}}, Reason.REVISION),
    ],
)
def test_object_that_cannot_be_told_from_others_is_unreadable(odd: Any, reason: Reason) -> None:
    event = pods.event(line("MODIFIED", odd))
    listed = json.dumps({"metadata": {"resourceVersion": "9"}, "items": [pod("b"), odd, pod("c")]}).encode()
    objects, unreadable = pods.objects(pods.page(listed).items)
    assert isinstance(event, Unreadable) and event.reason is reason
    assert [each.reason for each in unreadable] == [reason]
    assert [each.metadata.name for each in objects] == ["b", "c"]


def test_i12_too_many_labels_are_not_read_and_reported() -> None:
    reported = list[Unreadable]()
    decoder, odd = WatchDecoder(PODS, MalformedObjects(PODS.kind, reported.append)), pod("odd")
    odd["metadata"]["labels"] = {f"label-{number}": "" for number in range(MAX_LABELS + 1)}
    page = decoder.page(json.dumps({"metadata": {"resourceVersion": "9"}, "items": [odd]}).encode())
    for each in (decoder.event(line("MODIFIED", odd)), *decoder.objects(page.items)[0]):
        assert isinstance(each, Pod)
        assert (each.metadata.labels, each.problem) == (None, "it has 101 labels: at most 100 are supported")
    assert [(each.name, each.reason) for each in reported] == [("odd", Reason.FIELDS)] * 2


NESTED = b"[" * 5000 + b"]" * 5000


@pytest.mark.parametrize("field", ["unknown", "managedFields"])
def test_deep_nesting_of_an_unused_field_changes_nothing(field: str) -> None:
    odd = json.dumps(pod("odd", spec={"nodeName": "n", field: "x"})).encode().replace(b'"x"', NESTED)
    event = pods.event(b'{"type":"ADDED","object":' + odd + b"}")
    assert isinstance(event, Pod)
    assert (event.metadata.uid, event.spec.node_name, event.problem) == ("uid-odd", "n", "")
    listed = b'{"metadata":{"resourceVersion":"4"},"items":[' + odd + b"]}"
    objects, _ = pods.objects(pods.page(listed).items)
    assert [each.metadata.uid for each in objects] == ["uid-odd"]
    with pytest.raises(UnusualPage):
        pods.page(listed, repair=False)


def test_deep_nesting_of_a_used_field_is_a_problem_of_the_pod() -> None:
    odd = json.dumps(pod("odd", spec={"nodeName": "x"})).encode().replace(b'"x"', NESTED)
    event = pods.event(b'{"type":"ADDED","object":' + odd + b"}")
    assert isinstance(event, Pod)
    assert event.problem.startswith('spec.nodeName is "[[[[')


def test_number_beyond_all_bounds_in_an_unused_field_changes_nothing() -> None:
    odd = json.dumps(pod("odd", status={"startTime": 5, "x": "y"})).encode().replace(b'"y"', b"1e999999")
    event = pods.event(b'{"type":"ADDED","object":' + odd + b"}")
    assert isinstance(event, Pod)
    assert event.metadata.uid == "uid-odd"
    assert "startTime" in event.problem


def test_bytes_that_are_not_utf_8_are_replaced() -> None:
    odd = json.dumps(pod("odd", spec={"nodeName": "x"})).encode().replace(b'"x"', b'"\xff\\ud800"')
    event = pods.event(b'{"type":"ADDED","object":' + odd + b"}")
    assert isinstance(event, Pod)
    assert event.spec.node_name == "\ufffd\ufffd"


@pytest.mark.parametrize("version", [None, "", "x", "9" * 5000])
def test_removal_does_not_need_a_revision(version: Any) -> None:
    assert pods.event(line("DELETED", {"metadata": {"uid": "uid-a", "resourceVersion": version}})) == Removed(
        "uid-a", 0
    )


def test_page() -> None:
    body = {"metadata": {"resourceVersion": "40", "continue": "next"}, "items": [pod("a"), pod("b")]}
    page = pods.page(json.dumps(body).encode())
    assert [each.metadata.name for each in pods.objects(page.items)[0]] == ["a", "b"]
    assert (page.revision, page.continue_token) == (40, "next")


@pytest.mark.parametrize("items", [None, []])
def test_empty_page(items: Any) -> None:
    assert pods.page(json.dumps({"metadata": {"resourceVersion": "4"}, "items": items}).encode()).items == []


def test_malformed_items_of_a_page_are_decoded_partly_or_skipped() -> None:
    items = [pod("a"), 5, None, pod("odd", spec={"nodeName": 5}), pod("b")]
    page = pods.page(json.dumps({"metadata": {"resourceVersion": "4"}, "items": items}).encode())
    assert [each.metadata.name for each in pods.objects(page.items)[0]] == ["a", "odd", "b"]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"metadata": {}, "items": 5}', b'{"items": []}'])
def test_body_that_is_not_a_list_is_an_error(body: bytes) -> None:
    with pytest.raises(BadObject):
        pods.page(body)


@pytest.mark.parametrize("version", ["", "abc", "-1", "1.5", "٣"])
def test_incomparable_revisions_are_rejected(version: str) -> None:
    with pytest.raises(BadResourceVersion):
        pods.page(json.dumps({"metadata": {"resourceVersion": version}, "items": []}).encode())
