"""Muster's CustomResourceDefinitions: valid for kubectl, and with every field that dialects read."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.dialects.definitions import Definition, DefinitionKind
from muster.dialects.dialect import Dialect
from muster.dialects.registry import DIALECTS, defined_gang, read_gang

CRDS = Path(__file__).parents[3] / "deploy" / "crds"
BUILT_IN = {"", "scheduling.k8s.io"}
OF_CONTROLLERS = {"kueue.x-k8s.io"}
"""Kinds that are useless without the controller that installs them."""
NO_STATUS_SUBRESOURCE = {"podgroups.scheduling.volcano.sh"}
"""Kinds whose status is written as part of the object, as in the project that defined them."""


def definitions() -> dict[str, dict[str, Any]]:
    """Returns all CRDs by name."""
    found = [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]
    return {each["metadata"]["name"]: each for each in found}


ALL = definitions()
OURS: dict[str, Dialect] = {
    f"{kind.plural}.{kind.group}": dialect
    for dialect in DIALECTS
    if (kind := dialect.definition) is not None and kind.group not in BUILT_IN | OF_CONTROLLERS
}


def kind_of(name: str) -> DefinitionKind:
    kind = OURS[name].definition
    assert kind is not None
    return kind


class Watched(dict[str, Any]):
    """A JSON object that records the fields that are read."""

    def __init__(self, content: Mapping[str, Any], path: str, asked: set[str]) -> None:
        super().__init__({name: watched(value, f"{path}{name}.", asked) for name, value in content.items()})
        self._path, self._asked = path, asked

    def get(self, name: str, default: Any = None) -> Any:
        self._asked.add(f"{self._path}{name}")
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self._asked.add(f"{self._path}{name}")
        return super().__getitem__(name)


def watched(value: Any, path: str, asked: set[str]) -> Any:
    return Watched(value, path, asked) if isinstance(value, dict) else value


def example(schema: Mapping[str, Any], *, text: str = "1") -> Any:
    """Returns a value with every field of the schema."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: example(inner) for name, inner in (schema.get("properties") or {}).items()}
        case "array":
            return [example(schema["items"])]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case _:
            return text


def paths(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, inner in (schema.get("properties") or {}).items():
        yield f"{path}{name}"
        yield from paths(inner, f"{path}{name}.")


def schema_of(definition: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    (found,) = (each for each in definition["spec"]["versions"] if each["name"] == version)
    properties: Mapping[str, Any] = found["schema"]["openAPIV3Schema"]["properties"]
    return properties


@pytest.mark.parametrize("name", OURS)
def test_every_kind_of_a_dialect_has_one(name: str) -> None:
    names = ALL[name]["spec"]["names"]
    assert (ALL[name]["spec"]["group"], names["kind"], names["plural"]) == (
        kind_of(name).group,
        kind_of(name).kind,
        kind_of(name).plural,
    )
    for version in (kind_of(name).version, *kind_of(name).older):
        assert "spec" in schema_of(ALL[name], version)


@pytest.mark.parametrize("name", OURS)
def test_every_field_that_is_read_is_in_the_schema(name: str) -> None:
    kind = kind_of(name)
    properties = schema_of(ALL[name], kind.version)
    asked: set[str] = set()
    spec = watched(example(properties["spec"]), "", asked)
    definition = Definition(kind.api_version, kind.kind, "a", "A", "u", spec=spec)
    gang_id = defined_gang(definition) or f"{OURS[name].name}/a/A"
    read_gang(gang_id, definition, [])
    assert asked, "nothing was read"
    assert asked <= set(paths(properties["spec"]))
    assert set(kind.status) <= set(properties.get("status", {}).get("properties", {}))


@pytest.mark.parametrize("name", ALL)
def test_kubectl_shows_it_well(name: str) -> None:
    spec = ALL[name]["spec"]
    assert spec["names"]["shortNames"]
    assert spec["scope"] == ("Cluster" if name == "hypernodes.topology.volcano.sh" else "Namespaced")
    for version in spec["versions"]:
        columns = [column["name"] for column in version["additionalPrinterColumns"]]
        assert columns[-1] == "Age"
        assert len(columns) > 2
        known = {f".{path}" for path in paths(version["schema"]["openAPIV3Schema"])}
        for column in version["additionalPrinterColumns"]:
            path = column["jsonPath"].partition("[")[0]
            assert path in known or path.startswith(".metadata."), column


@pytest.mark.parametrize("name", OURS)
def test_its_status_is_apart_if_it_has_one(name: str) -> None:
    for version in ALL[name]["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        apart = "status" in schema["properties"] and name not in NO_STATUS_SUBRESOURCE
        assert apart == ("status" in version.get("subresources", {}))


@pytest.mark.parametrize("name", ALL)
def test_every_field_of_the_spec_has_a_description(name: str) -> None:
    for version in ALL[name]["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for field, schema in spec["properties"].items():
            assert schema.get("description"), f"{name}: spec.{field}"


@pytest.mark.parametrize("name", [name for name in ALL if name.endswith(".k8s.io")])
def test_an_api_server_takes_a_kind_of_a_protected_group(name: str) -> None:
    approval = ALL[name]["metadata"]["annotations"]["api-approved.kubernetes.io"]
    assert approval.startswith(("https://", "unapproved, "))
