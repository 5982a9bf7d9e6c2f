"""Objects that cannot be read completely get a Warning event, once."""

from typing import Any

from builders.lifecycle.replicas import LifecycleCluster
from muster.kube.api_resources import PODS, PRIORITY_CLASSES
from muster.kube.malformed_objects import Reason, Unreadable
from muster.lifecycle.controller import ControllerContext
from muster.lifecycle.malformed_objects import MalformedObjectReporter

EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"
ODD = Unreadable(Reason.REVISION, 'its resourceVersion is "x"', "uid-1", "default", "odd")


class Informed(MalformedObjectReporter):
    """The reporter, and the context by which tests report objects."""

    context: ControllerContext
    made: "Informed"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        Informed.context, Informed.made = context, self


def notes(reply: Any, name: str) -> list[str]:
    items = reply.body["items"] if reply.status == 200 else []
    return [each["note"] for each in items if each["regarding"]["name"] == name]


async def test_malformed_object_gets_one_event(rig: LifecycleCluster) -> None:
    async with rig.replica(controllers=(Informed,)):
        informers = Informed.context.informers
        for _ in range(5):
            informers.report(PODS, ODD)
        informers.report(PODS, Unreadable(Reason.NOT_AN_OBJECT, "nobody can say whose this is"))
        informers.report(PRIORITY_CLASSES, Unreadable(Reason.FIELDS, "value is 7.5", "uid-2", "", "high"))
        await rig.api.until(EVENTS.format("default"), lambda reply: notes(reply, "high") != [])
        reply = await rig.api.get(EVENTS.format("default"))
        assert notes(reply, "odd") == [
            'Muster cannot read this object, or not all of it: its resourceVersion is "x". Correct or delete it'
        ]
        [event] = [each for each in reply.body["items"] if each["regarding"]["name"] == "high"]
        assert (event["type"], event["reason"]) == ("Warning", "MalformedObject")
        assert (event["regarding"]["apiVersion"], event["regarding"]["kind"]) == (
            "scheduling.k8s.io/v1",
            "PriorityClass",
        )


async def test_flood_of_malformed_objects_is_bounded(rig: LifecycleCluster) -> None:
    async with rig.replica(controllers=(Informed,)):
        for number in range(5_000):
            informers = Informed.context.informers
            informers.report(PODS, Unreadable(Reason.FIELDS, "odd", f"uid-{number}", "default", f"pod-{number}"))
        assert Informed.made.pending <= 100


async def test_malformed_objects_of_one_namespace_do_not_hide_that_of_another(rig: LifecycleCluster) -> None:
    async with rig.replica(controllers=(Informed,)):
        informers = Informed.context.informers
        for number in range(5_000):
            informers.report(PODS, Unreadable(Reason.FIELDS, "odd", f"uid-{number}", "noisy", f"pod-{number}"))
        informers.report(PODS, ODD)
        await rig.api.until(EVENTS.format("default"), lambda reply: notes(reply, "odd") != [])
        assert Informed.made.pending > 50, "it was among the next"
