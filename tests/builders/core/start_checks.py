"""I1 of gangs with claims: at the first bind of gangs that start together, the claims of all are ready.

The check knows only records in etcd, the cluster, and which volumes were made; not how the coordinator keeps the rule.
"""

from typing import TYPE_CHECKING

from builders.core.invariants import complete_children, permit_of
from muster.coordinator.core.events import Record, RecordState, Seat
from muster.devices.extended_resources import EXTENDED_CLAIM
from muster.gangs.facts import GangFacts, PodFacts, PodPhase

if TYPE_CHECKING:
    from builders.core.scenario import Scenario


def check_claims_of_start(scenario: "Scenario", pod: PodFacts, seat: Seat) -> None:
    """Not checked of a pod that was there before a restore of the API server: others of its gang may have been bound by
    then.
    """
    if pod.uid in scenario.undone_binds or pod.gang not in scenario.cluster.gangs or _has_run(scenario, pod.gang):
        return
    record = permit_of(scenario.etcd, pod, seat)
    if record is None or record.gang != pod.gang:
        return
    assert _is_ready(scenario, record), f"I1: {record.gang} is bound before the claims of its members are ready"
    composites = scenario.cluster.gangs[record.gang].composites
    if not composites and scenario.permitted_in.get(record.gang):
        return  # taken out of its composite after the permit
    if not composites:
        for partner in map(scenario.etcd.get, record.group):
            if partner is None or _is_in_composite(scenario, partner):
                continue  # this gang was taken out of the composite after the permit
            if _starts_with(partner, record) and not _has_run(scenario, partner.gang):
                assert _is_ready(scenario, partner), f"I1: {record.gang} is bound before the claims of {partner.gang}"
        return
    permitted = {each.gang for each in scenario.etcd.values() if each.state is not RecordState.UNPERMITTED}
    runs = {id_ for id_ in permitted if id_ in scenario.cluster.gangs and _has_run(scenario, id_)}
    ready = runs | {id_ for id_ in permitted - runs if _is_ready(scenario, scenario.etcd[id_])}
    root = composites[0].name  # a restore may bring gangs back with another minimum of the same composite
    if not permitted | scenario.sent_with[record.gang] <= scenario.cluster.gangs.keys():
        return  # one with a permit was deleted since, perhaps of this composite; the call may have been under way
    declared = [each for each in scenario.cluster.gangs.values() if each.composites and each.composites[0].name == root]
    if any(_moved(scenario, each, root) for each in scenario.cluster.gangs.values()):
        return  # gangs were put into the composite after their permit, or taken out of it
    if ready.issuperset(each.id for each in declared if each.id in permitted):
        return  # what is missing was deleted after the permit
    for composite in reversed(composites):
        if complete_children(declared, composite.name, runs) >= composite.minimum:
            break
        children = complete_children(declared, composite.name, ready)
        assert children >= composite.minimum, (
            f"I1: {record.gang} is bound when the claims of {children} of {composite.minimum} children of "
            f"{composite.name} are ready"
        )


def _starts_with(partner: Record, record: Record) -> bool:
    """The partner was permitted together with the gang, and is still starting."""
    return (
        partner.state is RecordState.BINDING
        and record.gang in partner.group
        and partner.permitted_unix_millis == record.permitted_unix_millis
    )


def _is_in_composite(scenario: "Scenario", record: Record) -> bool:
    facts = scenario.cluster.gangs.get(record.gang)
    return facts is not None and bool(facts.composites)


def _moved(scenario: "Scenario", gang: GangFacts, root: str) -> bool:
    """The gang is or was in a tree of composites, and has another place in it than when it got its permit."""
    before = scenario.permitted_in.get(gang.id, gang.composites)
    return before != gang.composites and any(own[0].name == root for own in (before, gang.composites) if own)


def _has_run(scenario: "Scenario", gang: str) -> bool:
    """Members run or ran; or did, before a restore of the API server undid their binds: then the gang is repaired; or
    when the Bind was sent, and have left since.
    """
    record = scenario.etcd.get(gang)
    if gang in scenario.begun or (record is not None and record.met_minimum):
        return True
    return any(
        pod.node or pod.phase is PodPhase.SUCCEEDED for pod in scenario.cluster.pods.values() if pod.gang == gang
    )


def _is_ready(scenario: "Scenario", record: Record) -> bool:
    """The claims of all members, or of the minimum, are ready."""
    facts = scenario.cluster.gangs.get(record.gang)
    unready = sum(not _seat_is_ready(scenario, seat, record.gang) for seat in record.seats)
    return not unready or (facts is not None and len(record.seats) - unready >= facts.minimum)


def _seat_is_ready(scenario: "Scenario", seat: Seat, gang: str) -> bool:
    pod = scenario.cluster.pods.get(seat.uid)
    if pod is None or pod.node or pod.deleting or pod.phase.ended or pod.gang != gang:  # not a member to bind any more
        return True
    if pod.uid in scenario.untold_pods():
        return True  # it may have claims that the coordinator does not know
    if pod.claims and pod.uid not in scenario.made_volumes:
        return False
    return scenario.claims.are_ready(pod, extended=EXTENDED_CLAIM in dict(seat.devices))
