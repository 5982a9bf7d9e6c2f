"""Handlers of shared informers: an object for which one raises hides no other and does not end the process."""

from typing import Any

from muster.kube.api_resources import PODS
from muster.kube.malformed_objects import MalformedObjects, Reason
from muster.kube.metrics import MALFORMED
from muster.kube.object_changes import ObjectChanges, Removed
from muster.lifecycle.informers import call_handler


def test_object_for_which_a_handler_raises_is_skipped() -> None:
    seen: list[Any] = []
    through: list[int] = []

    def handler(changes: ObjectChanges[Any]) -> None:
        for item in changes.items:
            if item.uid == "odd":
                raise RecursionError("nested")
            if item.uid not in seen:
                seen.append(item.uid)
        through.append(changes.through)

    count = MALFORMED.labels(PODS.kind, Reason.REJECTED.value)
    before = count.value
    changes: ObjectChanges[Any] = ObjectChanges(PODS.kind, [Removed("a"), Removed("odd"), Removed("b")], 7)
    call_handler(handler, changes, MalformedObjects(PODS.kind))
    assert seen == ["a", "b"]
    assert through[-1] == 7
    assert count.value == before + 1
