"""Planted bugs of the reasons of pending pods: when autoscalers are asked for nodes."""

from mutation.bug import Bug

_WAITS = "unit/coordinator/test_waits.py"
_NODES = "unit/coordinator/test_nominated_nodes.py"
_DIAGNOSIS = "report/diagnosis.py"
_REPORTS = "report/reports.py"

WAIT_BUGS = (
    Bug(
        "a preemptor asks for nodes while its victims leave",
        _DIAGNOSIS,
        "        return Wait.PREEMPTING\n",
        "        return Wait.CAPACITY\n",
        first=_WAITS,
    ),
    Bug(
        "reserved capacity is awaited however late it is free",
        _DIAGNOSIS,
        "nomination.starts_at - nomination.begun_at <= SOON_SECONDS",
        "nomination.backfill",
        first=_WAITS,
    ),
    Bug(
        "a gang that became incomplete during a solve still asks for nodes",
        _DIAGNOSIS,
        "    if group.busy and group not in cache.nominations and ",
        "    if False and group not in cache.nominations and ",
        first=_WAITS,
    ),
    Bug(
        "nodes are asked for where only hard constraints are in the way",
        _DIAGNOSIS,
        "    if explanation.only_constraints:\n        return Wait.TOPOLOGY\n",
        "",
        first=_WAITS,
    ),
    Bug(
        "nodes are asked for pods that name their nodes",
        _DIAGNOSIS,
        "    if pod_class is not None and names_nodes(pod_class):\n        return Wait.NAMED_NODES\n",
        "",
        first=_WAITS,
    ),
    Bug(
        "nodes are asked for where a volume is missing",
        _DIAGNOSIS,
        "    if any(is_static(name) for name, _ in explanation.short_by):\n        return Wait.VOLUMES\n",
        "",
        first=_WAITS,
    ),
    Bug(
        "nodes are asked for members that hold a seat",
        _REPORTS,
        "            with_seat = why.wait if failing else Wait.HOLDING\n",
        "            with_seat = why.wait\n",
        first=_WAITS,
    ),
    Bug(
        "nodes are asked for pods that timed out",
        _REPORTS,
        "                    yield uid, why._replace(wait=Wait.TIMED_OUT)\n",
        "                    yield uid, why\n",
        first=_WAITS,
    ),
    Bug(
        "another wait with the same words is not reported",
        _REPORTS,
        "            if (before.wait, before.node) != (after.wait, after.node):\n",
        "            if before.node != after.node:\n",
        first=_WAITS,
    ),
    Bug(
        "members that are being bound go on asking for nodes",
        _REPORTS,
        "            if outdated and gang not in self._due:\n",
        "            if False:\n",
        first=_WAITS,
    ),
    Bug(
        "failed binds are retried too late",
        "permits/binding.py",
        "        self._earliest = min(at, self._earliest)\n",
        "        self._earliest = min(at + 1, self._earliest)\n",
    ),
    Bug(
        "nominated nodes that an earlier leader wrote are not confirmed",
        _REPORTS,
        "            reported = self._reported[gang] = _reported_earlier(gang)\n",
        "            reported = self._reported[gang] = _Reported()\n",
        first=_NODES,
    ),
    Bug(
        "members keep the nominated node of capacity that they lost",
        _REPORTS,
        "            if (before.wait, before.node) != (after.wait, after.node):\n",
        "            if before.wait != after.wait:\n",
        first=_NODES,
    ),
    Bug(
        "a node is nominated for more members than it has capacity for",
        "report/nominated_nodes.py",
        "            left[key] -= 1\n",
        "",
        first=_NODES,
    ),
    Bug(
        "members change their nominated nodes with one another",
        "report/nominated_nodes.py",
        "        if left[key] > 0:\n",
        "        if False:\n",
        first=_NODES,
    ),
    Bug(
        "a failed attempt of a preemptor that lost its nomination hides that",
        _REPORTS,
        " and reported.wait not in _OF_NOMINATIONS:\n",
        ":\n",
        first=_WAITS,
    ),
    Bug(
        "nodes are asked for while another gang of the group is incomplete",
        "queue/pre_enqueue.py",
        "            if lack.wait is not Wait.MINIMUM_RESOURCES:",
        "            if True:",
        first="unit/coordinator/test_waits.py",
    ),
    Bug(
        "a failed attempt changes what a gang waits for",
        _REPORTS,
        "            wait = reported.wait\n",
        "            pass\n",
        first=_WAITS,
    ),
    Bug(
        "a gang that waits with its class keeps the reason of its own failed attempt",
        "queue/equivalence.py",
        " or bool(group.queueing.failure)\n",
        "\n",
        first="unit/coordinator/test_equivalence_classes.py",
    ),
    Bug(
        "the limit of what may be held is a result of preemption, which the next one replaces",
        "solve/solve.py",
        "            group.verdicts.conclude(Verdict.HOLD_LIMIT, limit)\n",
        "            group.verdicts.conclude(Verdict.PREEMPTION, limit)\n",
        first="unit/coordinator/test_holds_end.py",
    ),
    Bug(
        "a verdict of one kind replaces those of others",
        "gang/verdicts.py",
        "        others = {each: said for each, said in self.sentences.items() if each is not kind}\n",
        "        others: dict[Verdict, str] = {}\n",
        first="unit/coordinator/test_verdicts.py",
    ),
    Bug(
        "a gang for which capacity is reserved still says that waiting would not help",
        "preemption/plan.py",
        "Verdict.RESERVATION if nomination.backfill else Verdict.PREEMPTION",
        "Verdict.PREEMPTION",
        first="unit/coordinator/test_verdicts.py",
    ),
    Bug(
        "verdicts outlive the explanation that they belong to",
        "solve/solve.py",
        "            group.verdicts.forget()\n",
        "",
        first="unit/coordinator/test_verdicts.py",
    ),
)
