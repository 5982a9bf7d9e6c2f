"""docs/autoscaling.md lists the reasons of pending pods as the coordinator writes them."""

from pathlib import Path

from muster.coordinator.core.report.waits import Wait

PAGE = Path(__file__).parents[3] / "docs" / "autoscaling.md"


def rows() -> dict[str, str]:
    """Reasons, and whether more nodes help, as documented."""
    section = PAGE.read_text().partition("## Reasons of pending pods")[2].partition("\n## ")[0]
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {reason.strip(" `"): helps.strip() for reason, _, helps in cells}


def test_the_page_lists_exactly_the_reasons_of_the_table() -> None:
    assert set(rows()) == {wait.reason for wait in Wait}


def test_the_page_says_for_which_reasons_nodes_help() -> None:
    assert {reason for reason, helps in rows().items() if helps == "yes"} == {
        wait.reason for wait in Wait if wait.nodes_help
    }
