"""The chart's admission policies: one sets Muster's scheduler name, one makes gangs of Kueue's Workloads."""

from typing import Final

import yaml

from builders.deploy.helm import JSON, template

LABEL: Final = "muster.dev/schedule-gangs"
KUEUE_LABEL: Final = "muster.dev/kueue-workloads"
KINDS: Final = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")


def policy_and_binding(values: str = "", enabled: str = "schedulerNamePolicy.enabled") -> tuple[JSON, JSON]:
    """Returns the policy that is rendered if `enabled` is true, and its binding; `values`: further values, as YAML."""
    result = template(f"--set={enabled}=true", values=values)
    assert result.returncode == 0, result.stderr
    objects = [each for each in yaml.safe_load_all(result.stdout) if each]
    [policy], [binding] = ([each for each in objects if each["kind"] == kind] for kind in KINDS)
    return policy, binding
