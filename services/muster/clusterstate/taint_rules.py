"""Taints of DeviceTaintRules, which apply as if they stood in the ResourceSlices."""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from muster.devices.facts import Device, DeviceClass, DeviceTaint, Slice, TaintRule
from muster.devices.selectors import SelectorError
from muster.gangs.facts import TaintEffect

_Key = tuple[str, str]
"""Driver and pool that a rule names; empty: any."""


class TaintRules:
    """Rules by uid, and by the devices that they name, so that a slice is compared with the rules for its pool only.
    Entries end with the rule (I11).
    """

    def __init__(self, matches: Callable[[str, Device], bool], classes: Mapping[str, DeviceClass]) -> None:
        """`matches` evaluates an expression for a device; it raises SelectorError."""
        self._matches, self._classes = matches, classes
        self._rules: dict[str, TaintRule] = {}
        self._named: dict[_Key, dict[str, dict[str, TaintRule]]] = {}
        """By driver and pool, name of the device (empty: all), and uid."""

    def __len__(self) -> int:
        return len(self._rules)

    def put(self, uid: str, rule: TaintRule | None) -> list[TaintRule]:
        """Add, change or remove (None) a rule; returns the rules whose devices may have other taints now."""
        if rule is not None and (not rule.selects or rule.taint.effect is TaintEffect.NONE):
            rule = None
        before = self._rules.get(uid)
        if before == rule:
            return []
        if before is not None:
            self._remove(uid, before)
        if rule is not None:
            self._rules[uid] = rule
            named = self._named.setdefault((rule.driver, rule.pool), {})
            named.setdefault(rule.device, {})[uid] = rule
        return [each for each in (before, rule) if each is not None]

    def of_class(self, name: str) -> list[TaintRule]:
        """Rules that select devices by this class."""
        return [rule for rule in self._rules.values() if rule.device_class == name]

    def tainted(self, slice_: Slice) -> Slice:
        """The slice, with the taints of the rules that select its devices, each once."""
        named = [found for key in selecting_keys(slice_) if (found := self._named.get(key))]
        if not named:
            return slice_
        devices = tuple(self._with_taints(device, named) for device in slice_.devices)
        return slice_ if devices == slice_.devices else replace(slice_, devices=devices)

    def _with_taints(self, device: Device, named: Iterable[Mapping[str, Mapping[str, TaintRule]]]) -> Device:
        rules = [rule for each in named for name in ("", device.name) for rule in each.get(name, {}).values()]
        added: list[DeviceTaint] = []
        for rule in sorted(rules, key=lambda rule: rule.name):
            if rule.taint not in device.taints and rule.taint not in added and self._selects(rule, device):
                added.append(rule.taint)
        return replace(device, taints=(*device.taints, *added)) if added else device

    def _selects(self, rule: TaintRule, device: Device) -> bool:
        """Whether the rule's class and expressions select the device; one that fails does not."""
        selectors = rule.selectors
        if rule.device_class:
            device_class = self._classes.get(rule.device_class)
            if device_class is None or device_class.unsupported is not None:
                return False
            selectors = device_class.selectors + selectors
        try:
            return all(self._matches(each, device) for each in selectors)
        except SelectorError:
            return False

    def _remove(self, uid: str, rule: TaintRule) -> None:
        del self._rules[uid]
        key = (rule.driver, rule.pool)
        named = self._named[key]
        del named[rule.device][uid]
        if not named[rule.device]:
            del named[rule.device]
        if not named:
            del self._named[key]


def selecting_keys(slice_: Slice) -> list[_Key]:
    """Driver and pool as rules name them that may select devices of the slice."""
    return [(driver, pool) for driver in ("", slice_.driver) for pool in ("", slice_.pool)]
