"""The chart's admission policies: Muster's scheduler name, gangs of Kueue's Workloads, the finalizer of claims."""

from typing import Final

import yaml

from builders.deploy.helm import JSON, template

LABEL: Final = "muster.dev/schedule-gangs"
KUEUE_LABEL: Final = "muster.dev/kueue-workloads"
KINDS: Final = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")


def policies_and_bindings(values: str = "", *enabled: str) -> list[tuple[JSON, JSON]]:
    """Returns the policies that are rendered with these switches on, each with its binding, in order of their names.

    `values`: further values, as YAML; `enabled`: the switches, by default only the one of the scheduler name.
    """
    switches = [f"--set={each}=true" for each in enabled or ("schedulerNamePolicy.enabled",)]
    result = template(*switches, values=values)
    assert result.returncode == 0, result.stderr
    objects = [each for each in yaml.safe_load_all(result.stdout) if each]
    policies, bindings = (
        sorted((each for each in objects if each["kind"] == kind), key=lambda each: str(each["metadata"]["name"]))
        for kind in KINDS
    )
    return list(zip(policies, bindings, strict=True))
