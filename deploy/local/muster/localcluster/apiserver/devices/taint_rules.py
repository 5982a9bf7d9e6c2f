"""DeviceTaintRules of resource.k8s.io/v1beta2: one taint of all devices that a selector selects. There is no controller
that evicts pods because of them.
"""

from collections.abc import Iterable
from typing import ClassVar

from msgspec import Struct

from muster.localcluster.apiserver.clock import now_text
from muster.localcluster.apiserver.devices.names import driver_causes, label_causes, pool_causes
from muster.localcluster.apiserver.devices.slice_types import Taint
from muster.localcluster.apiserver.devices.slice_validation import taint_causes
from muster.localcluster.apiserver.devices.types import read
from muster.localcluster.apiserver.kinds import Rules
from muster.localcluster.apiserver.status import Cause
from muster.localcluster.apiserver.store import Object


class _Selector(Struct):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class _Spec(Struct, rename="camel"):
    device_selector: _Selector | None = None
    taint: Taint | None = None


class _TaintRule(Struct):
    spec: _Spec | None = None


class TaintRuleRules(Rules):
    """Taint rules: a key and an effect are required."""

    counts_generations = True
    empty_status: ClassVar = {}

    def default(self, obj: Object) -> None:
        spec = read(obj, _TaintRule).spec or _Spec()
        if spec.taint is not None:
            obj["spec"]["taint"].setdefault("timeAdded", now_text())

    def validate(self, obj: Object) -> Iterable[Cause]:
        spec = read(obj, _TaintRule).spec or _Spec()
        selector = spec.device_selector or _Selector()
        if selector.driver is not None:
            yield from driver_causes(selector.driver, "spec.deviceSelector.driver")
        if selector.pool is not None:
            yield from pool_causes(selector.pool, "spec.deviceSelector.pool")
        if selector.device is not None:
            yield from label_causes(selector.device, "spec.deviceSelector.device")
        yield from taint_causes(spec.taint or Taint(), "spec.taint")
