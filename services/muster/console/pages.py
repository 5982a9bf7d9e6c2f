"""Contents of the pages about one subject: the overview, a gang, a node. No I/O."""

from collections.abc import Mapping
from typing import Any, Final

from muster.clusterstate.v1.clusterstate_pb2 import Problem
from muster.console.forecast import names_others
from muster.console.gangs import row
from muster.console.played_changes import Played
from muster.console.state import HIDDEN, State, is_usable
from muster.coordinator.v1.coordinator_pb2 import ExplainResponse
from muster.gangs.facts import TaintEffect

MAX_MEMBERS: Final = 2000
"""Members that the page of a gang lists; the others are counted."""
MAX_PODS: Final = 500
"""Pods that the page of a node lists."""
_MAX_LABELS: Final = 200

Namespaces = frozenset[str] | None
"""Namespaces in which a reader has rights; None: all, and the cluster."""


def overview(state: State, namespaces: Namespaces, now_seconds: int) -> dict[str, Any]:
    """Health, queue, and for readers of the whole cluster starts and utilisation."""
    counts = state.gangs.counts(namespaces)
    page: dict[str, Any] = {
        "sources": {
            source.name: {"connected": source.connected, "detail": source.detail, "since": source.since_seconds}
            for source in state.sources.values()
        },
        "leader": state.leader,
        "phases": counts.phases,
        "queued": counts.queued,
        "pending_pods": counts.pending_pods,
        "oldest": counts.oldest,
        "oldest_created": counts.oldest_seconds,
    }
    if namespaces is None:
        totals = state.totals
        page |= {
            "starts": state.gangs.starts_by_minute(now_seconds),
            "last_start": state.gangs.last_start_seconds,
            "nodes": totals.nodes,
            "usable_nodes": totals.usable,
            "utilisation": {
                name: {"allocatable": amount, "used": totals.used[name], "reserved": totals.reserved[name]}
                for name, amount in sorted(totals.allocatable.items())
                if amount
            },
        }
    return page


def gang_page(
    state: State, answer: ExplainResponse, namespaces: Namespaces, trace_url: str, played: dict[str, Any] | None
) -> dict[str, Any]:
    """The page of a gang that the reader may see. Names of gangs in other namespaces are hidden. `played`: changes with
    which it would start now, see `played_page`.
    """
    gang = answer.gang
    record = state.records.get(gang.id)
    ranks = dict(record.ranks) if record is not None else {}
    explanation = answer.explanation

    def seen(ids: Any) -> list[str]:
        return [id_ if state.may_see(id_, namespaces) else HIDDEN for id_ in ids]

    return {
        **row(gang),
        "reason": gang.reason,
        "terms": list(gang.terms),
        "trace_id": gang.trace_id,
        "trace_url": trace_url.replace("{trace_id}", gang.trace_id) if trace_url and gang.trace_id else "",
        "group": seen(answer.group),
        "queue_position": answer.queue_position,
        "ahead": seen(answer.ahead),
        "attempts": answer.attempts,
        "problems": [
            {"blocking": problem.severity != Problem.SEVERITY_WARNING, "message": problem.message}
            for problem in answer.problems
        ],
        "lacks": list(answer.would_help),
        "played": played,
        "expected_start": state.expected.get(gang.id),
        "assumption": state.forecast.for_reader(namespaces).assumption,
        "explanation": {
            "summary": explanation.summary,
            "fit": explanation.fit,
            "needed": explanation.needed,
            "best_domain": explanation.best_domain,
            "best_domain_fit": explanation.best_domain_fit,
            "filtered_nodes": [{"nodes": each.nodes, "reason": each.reason} for each in explanation.filtered_nodes],
        },
        "devices": [request.summary for each in answer.claimed_devices for request in each.requests],
        "waits_until": answer.waits_until_unix_millis,
        "grows_after": answer.grows_after_unix_millis,
        "nominated_nodes": answer.nodes_with_nominated_capacity,
        "victims": seen(answer.victims),
        "preempted_by": seen([record.preempted_by])[0] if record is not None and record.preempted_by else "",
        "rejected": [{"reason": each.reason, "count": each.count} for each in answer.rejected_placements],
        "timeline": _timeline(state, answer),
        "member_count": len(answer.members),
        "listed_members": [_member(state, each, ranks) for each in answer.members[:MAX_MEMBERS]],
    }


def played_page(played: Played | None, namespaces: Namespaces) -> dict[str, Any]:
    """Changes that were played for a gang that waits; those that name gangs of other namespaces are counted."""
    if played is None:
        return {"found": False, "failure": ""}
    if played.remedies is None:
        return {"found": False, "failure": played.failure}
    changes = [each for each in played.remedies.changes if not names_others(each, namespaces)]
    return {
        "found": True,
        "read": played.remedies.read_seconds,
        "starts_now": played.remedies.starts_now,
        "changes": changes,
        "hidden": len(played.remedies.changes) - len(changes),
    }


def _timeline(state: State, answer: ExplainResponse) -> list[dict[str, Any]]:
    """What is known to have happened to a gang, by time."""
    gang, record = answer.gang, state.records.get(answer.gang.id)
    events = [{"what": "created", "at": gang.created_seconds * 1000, "exact": True}]
    if record is not None and record.permitted_unix_millis:
        events.append({"what": "permitted", "at": record.permitted_unix_millis, "exact": True})
    if record is not None and record.waiting_since_unix_millis:
        events.append({"what": "holds reservations", "at": record.waiting_since_unix_millis, "exact": True})
    started = [
        pod.started_seconds
        for member in answer.members
        if (pod := state.cluster.pod_named(member.pod)) is not None and pod.started_seconds
    ]
    if started:
        events.append({"what": "first pod runs", "at": min(started) * 1000, "exact": True})
        if len(started) > 1:
            events.append({"what": "last pod runs", "at": max(started) * 1000, "exact": True})
    events += [
        {"what": f"phase {change.phase}", "at": change.unix_millis, "exact": change.known}
        for change in state.gangs.phases_of(gang.id)
    ]
    return sorted((each for each in events if each["at"]), key=lambda each: each["at"])


def _member(state: State, member: Any, ranks: Mapping[str, int]) -> dict[str, Any]:
    pod = state.cluster.pod_named(member.pod)
    return {
        "pod": member.pod,
        "state": member.state,
        "node": member.node,
        "reserved_node": member.reserved_node,
        "rank": ranks.get(pod.uid) if pod is not None else None,
        "phase": pod.phase if pod is not None else "",
        "started": pod.started_seconds if pod is not None else 0,
        "requests": dict(state.cluster.requests(pod.class_id)) if pod is not None else {},
    }


def node_page(state: State, name: str) -> dict[str, Any] | None:
    """The page of a node, for readers of the whole cluster; None if there is no such node."""
    node = state.cluster.nodes.get(name)
    if node is None:
        return None
    pods = state.cluster.pods_on(name)
    listed = sorted(pods, key=lambda pod: (pod.owner, pod.name))[:MAX_PODS]
    return {
        "name": name,
        "ready": node.ready,
        "cordoned": node.unschedulable,
        "usable": is_usable(node),
        "paths": state.cluster.paths_of(node),
        "allocatable": dict(node.allocatable),
        "used": dict(state.cluster.used(name)),
        "reserved": dict(state.withheld.reserved.get(name, {})),
        "nominated": dict(state.withheld.nominated.get(name, {})),
        "labels": dict(sorted(node.labels.items())[:_MAX_LABELS]),
        "taints": [f"{taint.key}={taint.value}:{_EFFECTS[taint.effect]}" for taint in node.taints],
        "pod_count": len(pods),
        "pods": [
            {
                "pod": f"{pod.namespace}/{pod.name}",
                "gang": pod.owner,
                "ours": bool(pod.gang),
                "phase": pod.phase,
                "started": pod.started_seconds,
                "requests": dict(state.cluster.requests(pod.class_id)),
            }
            for pod in listed
        ],
    }


_EFFECTS: Final = {
    TaintEffect.NONE: "",
    TaintEffect.NO_SCHEDULE: "NoSchedule",
    TaintEffect.PREFER_NO_SCHEDULE: "PreferNoSchedule",
    TaintEffect.NO_EXECUTE: "NoExecute",
}
