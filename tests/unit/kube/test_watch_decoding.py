"""Lists and watch lines become objects; what is odd in one does not hide the others."""

import json
from typing import Any

import pytest

from muster.kube.api_resources import NODES, PODS
from muster.kube.object_changes import Removed
from muster.kube.objects import BadObject, BadResourceVersion, Node, Pod
from muster.kube.watch_decoding import Bookmark, Decoding, WatchStatus

pods = Decoding(PODS)


def line(kind: str, content: Any) -> bytes:
    return json.dumps({"type": kind, "object": content}).encode()


def pod(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "7"}, **more}


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED"])
def test_an_object_that_came_or_changed(kind: str) -> None:
    event = pods.event(line(kind, pod(spec={"nodeName": "n", "unknown": [1]})))
    assert isinstance(event, Pod)
    assert (event.metadata.name, event.spec.node_name) == ("a", "n")


def test_an_object_that_went() -> None:
    assert pods.event(line("DELETED", pod())) == Removed("uid-a", 7)


def test_an_unreadable_object_that_went() -> None:
    assert pods.event(line("DELETED", pod(spec={"nodeName": 5}))) == Removed("uid-a", 7)


def test_a_bookmark_has_fields_that_no_object_has() -> None:
    content = {"metadata": {"resourceVersion": "12", "creationTimestamp": None}, "spec": {"containers": None}}
    assert pods.event(line("BOOKMARK", content)) == Bookmark(12)


def test_an_error() -> None:
    content = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old", "metadata": {}}
    assert pods.event(line("ERROR", content)) == WatchStatus(410, "Expired", "too old")


@pytest.mark.parametrize(
    "spec", [{"nodeName": 5}, {"containers": "none"}, {"priority": "high"}, {"priority": 2**80}, "nothing", [], 7]
)
def test_a_pod_with_fields_of_wrong_types_is_read_as_far_as_that_goes(spec: Any) -> None:
    event = pods.event(line("ADDED", pod(spec=spec)))
    assert isinstance(event, Pod)
    assert event.metadata.uid == "uid-a"
    assert event.problem


def test_a_node_with_fields_of_wrong_types_is_read_as_far_as_that_goes() -> None:
    event = Decoding(NODES).event(line("ADDED", pod("n", spec={"taints": "all"})))
    assert isinstance(event, Node)
    assert (event.metadata.name, bool(event.problem)) == ("n", True)


@pytest.mark.parametrize(
    "junk", [b"", b"<html>", b"[]", b"7", b"\xff\xfe", b'{"type":"ADDED"}', line("EXPLODED", pod()), line("ADDED", 5)]
)
def test_what_is_no_event_is_said_to_be_none(junk: bytes) -> None:
    with pytest.raises(BadObject):
        pods.event(junk)


def test_a_page() -> None:
    body = {"metadata": {"resourceVersion": "40", "continue": "next"}, "items": [pod("a"), pod("b")]}
    page = pods.page(json.dumps(body).encode())
    assert [each.metadata.name for each in page.items] == ["a", "b"]
    assert (page.revision, page.proceed) == (40, "next")


@pytest.mark.parametrize("items", [None, []])
def test_an_empty_page(items: Any) -> None:
    assert pods.page(json.dumps({"metadata": {"resourceVersion": "4"}, "items": items}).encode()).items == []


def test_a_page_with_odd_items_has_the_others_and_what_can_be_read_of_them() -> None:
    items = [pod("a"), 5, None, pod("odd", spec={"nodeName": 5}), pod("b")]
    page = pods.page(json.dumps({"metadata": {"resourceVersion": "4"}, "items": items}).encode())
    assert [each.metadata.name for each in page.items] == ["a", "odd", "b"]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"metadata": {}, "items": 5}', b'{"items": []}'])
def test_what_is_no_list_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(BadObject):
        pods.page(body)


@pytest.mark.parametrize("version", ["", "abc", "-1", "1.5", "٣"])
def test_revisions_that_cannot_be_compared_are_refused(version: str) -> None:
    with pytest.raises(BadResourceVersion):
        pods.page(json.dumps({"metadata": {"resourceVersion": version}, "items": []}).encode())
