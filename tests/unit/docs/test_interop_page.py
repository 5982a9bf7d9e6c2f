"""docs/interop.md is generated, and complete."""

from builders.docs.pages import DOCS, blocks_of
from interop.controllers import CONTROLLERS, GO, version_of
from interop.kinds import KINDS
from interop.page import PAGE, page
from interop.results import read_run
from interop.scenarios import SCENARIOS


def test_the_page_is_that_of_the_last_results() -> None:
    assert PAGE.read_text() == page(read_run()), "generate it: python tests/interop/page.py"


def test_every_scenario_has_a_result_with_the_pinned_versions() -> None:
    run = read_run()
    found = [(each.controller, each.workload, each.scenario) for each in run.results]

    assert found == [(kind.controller, kind.name, scenario.name) for kind in KINDS for scenario in SCENARIOS]
    assert run.versions == {each.name: version_of(each) for each in CONTROLLERS}


def test_every_program_has_a_module_that_pins_its_version() -> None:
    names = {each.name for each in GO.iterdir() if each.is_dir()} - {"etcd", "jaeger", "kubernetes"}

    assert {each.name for each in CONTROLLERS} - {"kube-controller-manager"} <= names


def test_every_workload_of_the_migration_page_is_run() -> None:
    shown = [each.section for each in blocks_of(DOCS / "migration.md") if each.text.startswith("kubectl apply")]

    assert sorted(shown) == sorted(kind.documented for kind in KINDS if kind.documented)
