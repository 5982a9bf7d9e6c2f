"""Writes docs/rights.md from the chart's files of rights.

python tools/rights_page.py prints the page; `--write` writes it to docs/rights.md.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from muster.localcluster.rights import Rights, Rule, find_rights, read_rights

PAGE = Path(__file__).parents[1] / "docs" / "rights.md"

_HEAD = """\
# What Muster may do in a cluster

Three services talk to the Kubernetes API, each as a ServiceAccount of its own. The coordinator and placement have no
access, and their pods have no token. The chart grants exactly what is listed here, from
[its files](../deploy/helm/muster/files/rights), of which `tools/rights_page.py` makes this page. The end-to-end tests
run all services with these rights: they fail when one is lacking, and [one of them](../tests/e2e/test_rights.py) when
one is never used.

Rights with an entry under "for" are granted while that feature is on (`sakkara.enabled`, `quota.enabled` in the chart's
values). Rights "in its namespace" hold in the namespace that Muster is installed in, all others in every namespace.

RBAC knows neither labels nor the fields of an object, so some rights reach further than what Muster does with them:

* binding may patch any pod. Of pods it changes labels, annotations and conditions, and only of those with Muster's
  `schedulerName`.
* For Sakkara, cluster-state may read and binding may patch any ConfigMap, because groups are declared by ConfigMaps
  with a label. Turn `sakkara.enabled` off where nobody uses them.
* lifecycle may create and delete any pod: those of QueueJobs, and those of PodGroups that ask to be restarted. Who
  controls lifecycle can therefore run pods with any ServiceAccount of any namespace: guard it like a controller of the
  cluster.

A kind that may not be read, or is not there, is done without; cluster-state says so in its log.
"""


def page() -> str:
    """The text of the page."""
    return _HEAD + "".join(_section(service, rights) for service, rights in read_rights(find_rights()).items())


def _section(service: str, rights: Rights) -> str:
    rows = [*_rows(rights.rules, "", "")]
    for feature, rules in rights.optional.items():
        rows += _rows(rules, "", feature)
    for purpose, rules in rights.namespaced.items():
        rows += _rows(rules, "its namespace", purpose if purpose in rights.optional else "")
    table = ["| API group | resources | verbs | in | for |", "|---|---|---|---|---|", *rows]
    return f"\n## {service}\n\n" + "\n".join(table) + "\n"


def _rows(rules: Iterable[Rule], where: str, feature: str) -> Iterator[str]:
    for rule in rules:
        groups = ", ".join(group or "(core)" for group in rule.api_groups)
        named = f" named {', '.join(rule.resource_names)}" if rule.resource_names else ""
        resources = ", ".join(rule.resources) + named
        yield f"| {groups} | {resources} | {', '.join(rule.verbs)} | {where} | {feature} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
