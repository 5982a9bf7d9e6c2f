"""docs/tracing.md: the picture shows the recorded trace, and documented spans, attributes and variables exist."""

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from muster.telemetry.otlp import SAMPLERS, read_otlp

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "tracing.md").read_text()
TRACE = json.loads((ROOT / "docs" / "traces" / "slow-pod.json").read_text())
OF_THE_SDK = {"OTEL_SPAN_EVENT_COUNT_LIMIT"}
"""Variables read by OpenTelemetry's SDK."""


class RecordedEnvironment(Mapping[str, str]):
    """An environment that records the names that are read."""

    def __init__(self, **values: str) -> None:
        self._values, self.names = values, set[str]()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def test_picture_shows_the_recorded_trace() -> None:
    spec = importlib.util.spec_from_file_location("trace_picture", ROOT / "tools" / "trace_picture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    drawn = (ROOT / "docs" / "traces" / "slow-pod.svg").read_text()
    assert module.picture(TRACE) == drawn, (
        "redraw it: tools/trace_picture.py docs/traces/slow-pod.json docs/traces/slow-pod.svg"
    )


def test_page_names_exactly_the_variables_that_are_read() -> None:
    environment = RecordedEnvironment(
        OTEL_EXPORTER_OTLP_ENDPOINT="collector:4317",
        OTEL_EXPORTER_OTLP_INSECURE="true",
        OTEL_TRACES_SAMPLER="parentbased_traceidratio",
    )
    assert read_otlp(environment) is not None
    documented = set(re.findall(r"\bOTEL_[A-Z_]+[A-Z]\b", PAGE)) | {"OTEL_EXPORTER_OTLP_CLIENT_KEY"}
    general = {name for name in environment.names if "_TRACES_" not in name or "OTLP" not in name}
    assert documented - environment.names - OF_THE_SDK == set()
    assert general - documented == set()
    assert set(SAMPLERS) <= set(re.findall(r"`([a-z_]+)`", PAGE))


@pytest.mark.parametrize("span", sorted({span["name"] for span in TRACE["spans"]}))
def test_each_span_of_the_recorded_trace_is_documented(span: str) -> None:
    name = "muster.<service>.v1.<Service>/<Method>" if "/" in span else span
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize(
    "field", sorted({name for span in TRACE["spans"] for name in span.get("attributes", {}) if name != "muster.pods"})
)
def test_each_attribute_of_the_recorded_trace_is_documented(field: str) -> None:
    assert f"`{field}`" in PAGE


def test_each_documented_attribute_is_set_somewhere() -> None:
    files = [*(ROOT / "services").rglob("*.py"), *(ROOT / "libs").rglob("*.py")]
    code = "\n".join(file.read_text() for file in files)
    fields = set(re.findall(r"`((?:muster|rpc|server|k8s|error)\.[a-z._]+)`", PAGE))
    assert {field for field in fields if f'"{field}"' not in code and not field.startswith("muster.v1")} == set()


def test_trace_id_on_the_page_is_that_of_the_picture() -> None:
    assert set(re.findall(r"\b[0-9a-f]{32}\b", PAGE)) == {TRACE["trace_id"]}
