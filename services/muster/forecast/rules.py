"""The coordinator's rules from the settings that differ from their defaults, as text."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import msgspec

from muster.coordinator.core.events import Rules
from muster.gangs.quoting import quoted


class BadChoice(ValueError):
    """A setting, a mode or nodes that do not exist. The message quotes it and says what is expected."""


def rules_of(settings: Mapping[str, str]) -> Rules:
    """The coordinator's rules with these settings, by the names of flags. Raises BadChoice."""
    rules = Rules()
    known = {each.name: type(getattr(rules, each.name)) for each in fields(Rules)}
    changed: dict[str, Any] = {}
    for name, text in settings.items():
        key = name.replace("-", "_")
        if key not in known:
            names = ", ".join(each.replace("_", "-") for each in known)
            raise BadChoice(f"no setting is named {quoted(name)}; settings are {names}")
        try:
            changed[key] = msgspec.convert(text, known[key], strict=False)
        except msgspec.ValidationError as error:
            raise BadChoice(f"setting {name}: {quoted(text)}: {error}") from None
    return replace(rules, **changed)
