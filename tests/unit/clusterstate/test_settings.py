"""Settings of cluster-state for nodes, levels by node labels and kinds of controllers."""

import pytest
from pydantic import ValidationError

from muster.clusterstate.settings import Settings


def test_levels_are_labels_by_name_from_the_top() -> None:
    given = Settings.model_validate(
        {"topology_levels": "zone=topology.kubernetes.io/zone, rack= example.com/my_rack.1"}
    )
    assert given.label_keys == {"zone": "topology.kubernetes.io/zone", "rack": "example.com/my_rack.1"}
    assert Settings.model_validate({"topology_levels": ""}).label_keys == {}


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ("zone", "a level is NAME=LABEL"),
        ("zone=", "a level is NAME=LABEL"),
        ("zone=bad key", "a level is NAME=LABEL"),
        ("zone=a/b/c", "a level is NAME=LABEL"),
        ("a:b=x", "a level is NAME=LABEL"),
        ("node=x", "may not be called 'node'"),
        ("zone=a,zone=b", "may not be called 'zone'"),
        ("zone=x/a,rack=x/a", "two levels have the label 'x/a'"),
    ],
)
def test_levels_that_make_no_sense_are_refused(levels: str, message: str) -> None:
    with pytest.raises(ValidationError, match="topology_levels") as refused:
        Settings.model_validate({"topology_levels": levels})
    assert message in str(refused.value)


def test_kinds_of_controllers_whose_pods_always_wait() -> None:
    assert Settings().arbitrator_owner_kinds == ("QueueJob.arbitrator.incubator.k8s.io",)
    given = Settings.model_validate({"arbitrator_owner_kinds": "Job.batch, ReplicationController"})
    assert given.arbitrator_owner_kinds == ("Job.batch", "ReplicationController")
    assert Settings.model_validate({"arbitrator_owner_kinds": ""}).arbitrator_owner_kinds == ()


@pytest.mark.parametrize("kinds", ["jobs.batch", "Job.", "Job/batch", "Job.Batch", "Job batch"])
def test_kinds_that_make_no_sense_are_refused(kinds: str) -> None:
    with pytest.raises(ValidationError, match=r"a kind is KIND\.GROUP"):
        Settings.model_validate({"arbitrator_owner_kinds": kinds})


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "pool=train",
        "muster.dev/pool=train",
        "muster.dev/pool notin (train,serve)",
        "a in (b, c), !d,e!=f , g",
        "a=",
    ],
)
def test_nodes_are_selected_as_by_kubectl(selector: str) -> None:
    assert Settings.model_validate({"node_selector": selector}).node_selector == selector


@pytest.mark.parametrize("selector", ["pool=train,", "pool in train", "pool notin ()x", "a=b c", "=x", "a>1", "a=b;c"])
def test_selectors_that_make_no_sense_are_refused(selector: str) -> None:
    with pytest.raises(ValidationError, match="a selector of nodes is as for `kubectl get -l`"):
        Settings.model_validate({"node_selector": selector})
