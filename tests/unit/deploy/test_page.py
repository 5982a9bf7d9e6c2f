"""Values shown in docs/helm.md are valid."""

import re

import pytest

from builders.deploy.helm import template
from builders.docs.pages import DOCS


def settings() -> list[tuple[str, str]]:
    """The page's example values, by number."""
    found = re.findall(r"^```yaml\n(.*?)^```", (DOCS / "helm.md").read_text(), re.DOTALL | re.MULTILINE)
    return [(str(number), values) for number, values in enumerate(found, 1)]


def test_the_fixture_renders_objects() -> None:
    assert len(settings()) >= 5


@pytest.mark.parametrize("values", dict(settings()).values(), ids=dict(settings()))
def test_helm_accepts_the_documented_values(values: str) -> None:
    result = template(values=values)
    assert result.returncode == 0, result.stderr
