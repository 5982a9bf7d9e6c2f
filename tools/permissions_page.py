"""Writes docs/permissions.md from the chart's RBAC files.

python tools/permissions_page.py prints the page; `--write` writes it to docs/permissions.md.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from muster.localcluster.permissions import Permissions, Rule, find_permissions, read_permissions

PAGE = Path(__file__).parents[1] / "docs" / "permissions.md"

_HEAD = """\
# Permissions in the Kubernetes API

Four services use the Kubernetes API, each with its own ServiceAccount. The coordinator and
placement have no access, and their pods have no token. The console is installed only with
`console.enabled`. The chart grants exactly the permissions (RBAC) listed here, from
[its files](../deploy/helm/muster/files/permissions), from which `tools/permissions_page.py`
generates this page. The end-to-end tests run all services with these permissions: they fail when
one is missing, and [one of them](../tests/e2e/test_permissions.py) fails when one is never used.

Permissions with an entry under "for" are granted while that feature is on (in the chart's values
`sakkara.enabled`, `quota.enabled`, `kueue.workloads`, `deviceWebhook.enabled` for "devices", and
`volcano.status` other than `never`).
Permissions "in its namespace" apply to the namespace that Muster is installed in, all others to
every namespace.

RBAC cannot select by labels or fields, so some permissions are wider than their use:

* binding may patch any pod. It changes labels, annotations and conditions of pods with Muster's
  `schedulerName` only.
* binding may update any ResourceClaim, and create and delete them. It changes those of pods with
  that `schedulerName` only, and creates and deletes those for their extended resources.
* For Sakkara, cluster-state may read and binding may patch any ConfigMap, because labelled
  ConfigMaps declare groups. Set `sakkara.enabled: false` where nobody uses them.
* cluster-state may list any event. It lists those of namespaces in which a gang lacks members, to
  say why controllers cannot create them.
* lifecycle may create and delete any pod: those of QueueJobs, and those of PodGroups with a restart
  policy. Control over lifecycle therefore allows running pods with any ServiceAccount in any
  namespace: protect it like a controller of the cluster.

A kind that is not served, or may not be read, is skipped; cluster-state logs a warning.
"""


def page() -> str:
    """The text of the page."""
    return _HEAD + "".join(
        _section(service, permissions) for service, permissions in read_permissions(find_permissions()).items()
    )


def _section(service: str, permissions: Permissions) -> str:
    rows = [*_rows(permissions.rules, "", "")]
    for feature, rules in permissions.optional.items():
        rows += _rows(rules, "", feature)
    for purpose, rules in permissions.namespaced.items():
        rows += _rows(rules, "its namespace", purpose if purpose in permissions.optional else "")
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
