"""Chart values that pages show or name exist in the chart."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders.deploy.helm import CHART, template
from builders.docs.pages import DOCS, blocks_of

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]
_NAMED = re.compile(r"`([a-z][A-Za-z]+(?:\.[a-z][A-Za-z]+)+)(?:[=:][^`]*)?`")
_OTHERS = re.compile(r"sakkara\.(group|member|topology)\b|tls\.(crt|key)$|placement\.search$")
"""Labels, keys of Secrets and spans that look like values."""


def shown() -> list[tuple[str, str]]:
    """Page and text of each example of values."""
    found = []
    for page in PAGES:
        for block in blocks_of(page):
            text = textwrap.dedent(block.text)
            if block.language == "yaml" and (read := yaml.safe_load(text.split("\n---")[0])).keys() <= VALUES.keys():
                assert read
                found.append((f"{page.name}: {block.section}", text))
    return found


def has(path: str) -> bool:
    at: Any = VALUES
    for name in path.split("."):
        if at == {}:  # any name is valid below
            return True
        if not isinstance(at, dict) or name not in at:
            return False
        at = at[name]
    return True


@pytest.mark.parametrize(("where", "values"), shown(), ids=[where for where, _ in shown()])
def test_documented_example_values_render(where: str, values: str) -> None:
    result = template(values=values)

    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_documented_value_names_exist(page: Path) -> None:
    named = [
        name for name in _NAMED.findall(page.read_text()) if name.split(".")[0] in VALUES and not _OTHERS.match(name)
    ]

    assert [name for name in named if not has(name)] == []


def test_an_unknown_value_name_is_detected() -> None:
    assert has("tls.mode")
    assert has("tls.certManager.issuerRef")
    assert not has("tls.modes")
    assert template(values="tls: {modes: none}").returncode != 0
