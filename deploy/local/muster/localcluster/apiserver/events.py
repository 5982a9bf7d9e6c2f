"""Events: one collection served by two API groups in different forms."""

from collections.abc import Iterable
from typing import Final

from muster.localcluster.apiserver.kinds import Kind, Rules, TableForm
from muster.localcluster.apiserver.status import Cause, invalid_value
from muster.localcluster.apiserver.store import Object
from muster.localcluster.apiserver.tables import TABLES

_CORE_OF_GROUPED: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
_GROUPED_OF_CORE: Final = {core: grouped for grouped, core in _CORE_OF_GROUPED.items()}
_ABOUT: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_GROUP: Final = "events.k8s.io"


class EventRules(Rules):
    """Events must be in the namespace of their object."""

    def validate(self, obj: Object) -> Iterable[Cause]:
        field = "regarding" if "regarding" in obj else "involvedObject"
        object_namespace = (obj.get(field) or {}).get("namespace") or ""
        own_namespace = obj["metadata"].get("namespace") or ""
        if object_namespace != own_namespace and not (object_namespace == "" and own_namespace == "default"):
            yield invalid_value(f"{field}.namespace", object_namespace, "does not match event.namespace")


def core_kind() -> Kind:
    """Event of v1: the form in which events are stored."""
    return Kind(
        group="",
        version="v1",
        name="Event",
        plural="events",
        short_names=("ev",),
        rules=EventRules(),
        table=TABLES["events"],
        selectable=(*(f"involvedObject.{name}" for name in _ABOUT), "reason", "type", "source", "reportingComponent"),
        stored_field=lambda label: "source.component" if label == "source" else label,
    )


def grouped_kind() -> Kind:
    """Event of events.k8s.io/v1."""
    core = TABLES["events"]
    return Kind(
        group=_GROUP,
        version="v1",
        name="Event",
        plural="events",
        short_names=("ev",),
        rules=EventRules(),
        table=TableForm(core.columns, lambda event, now: core.cells(_to_core(event), now)),
        selectable=(*(f"regarding.{name}" for name in _ABOUT), "reason", "type", "reportingController"),
        stored_field=_core_field,
        collection="events",
        to_stored=_to_core,
        from_stored=_to_grouped,
    )


def _to_core(event: Object) -> Object:
    return _renamed(event, _CORE_OF_GROUPED) | {"apiVersion": "v1"}


def _to_grouped(event: Object) -> Object:
    return _renamed(event, _GROUPED_OF_CORE) | {"apiVersion": f"{_GROUP}/v1"}


def _renamed(event: Object, names: dict[str, str]) -> Object:
    return {names.get(name, name): value for name, value in event.items()}


def _core_field(label: str) -> str:
    first, dot, rest = label.partition(".")
    return _CORE_OF_GROUPED.get(first, first) + dot + rest
