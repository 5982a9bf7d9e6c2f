"""Planted bugs of loans: surplus on the capacity of backfill reservations."""

from mutation.bug import Bug

_LOANS = "unit/coordinator/test_loans.py"

LOAN_BUGS = (
    Bug(
        "surplus may not borrow reserved capacity",
        "preemption/nomination.py",
        " or self.outlasts(group, now) or self.lends_to(group)",
        " or self.outlasts(group, now)",
        first=_LOANS,
    ),
    Bug(
        "surplus borrows although there is other capacity",
        "preemption/nomination.py",
        "        return self.lends and group.solve.borrows and may_borrow(group)",
        "        return self.lends and may_borrow(group)",
        first=_LOANS,
    ),
    Bug(
        "pods that nobody would recreate borrow",
        "preemption/nomination.py",
        "        pod.uncontrolled or pod.budgets or pod.priority",
        "        pod.budgets or pod.priority",
        first=_LOANS,
    ),
    Bug(
        "pods that a disruption budget protects borrow",
        "preemption/nomination.py",
        "        pod.uncontrolled or pod.budgets or pod.priority",
        "        pod.uncontrolled or pod.priority",
        first=_LOANS,
    ),
    Bug(
        "pods that are critical to the system borrow",
        "preemption/nomination.py",
        " or pod.budgets or pod.priority >= SYSTEM_CRITICAL_PRIORITY for",
        " or pod.budgets for",
        first=_LOANS,
    ),
    Bug(
        "a gang borrows again that kept what it borrowed",
        "preemption/nomination.py",
        " or gang.facts.subgroups or gang.growth.kept_loan:",
        " or gang.facts.subgroups:",
        first=_LOANS,
    ),
    Bug(
        "lent capacity counts as taken by others",
        "preemption/nomination.py",
        "        self.leaving.update(lent)\n",
        "",
        first=_LOANS,
    ),
    Bug(
        "capacity is lent that could not be taken back at once",
        "backfill/reservation.py",
        "        nomination.lends = not self._rules.evictions_per_hour",
        "        nomination.lends = True",
        first=_LOANS,
    ),
    Bug(
        "borrowers that are still being bound when the others have left are never taken back",
        "elastic/loans.py",
        "        queue.activate(nomination.group)",
        "        pass",
        first=_LOANS,
    ),
    Bug(
        "capacity that a gang needs meanwhile is awaited for ever",
        "elastic/loans.py",
        "        if not gang.in_transition and not gives_back(",
        "        if False and not gives_back(",
        first=_LOANS,
    ),
    Bug(
        "a gang borrows again of which pods did not leave in time",
        "elastic/loans.py",
        " and gang in nomination.revoked_from:\n            gang.growth.keep_loan()",
        " and gang in nomination.revoked_from:\n            pass",
        first=_LOANS,
    ),
    Bug(
        "borrowers of a higher priority are not taken back",
        "preemption/plan.py",
        "        preempted = victims.preempted.keys() - victims.borrowers",
        "        preempted = victims.preempted.keys()",
        first=_LOANS,
    ),
    Bug(
        "a plan to take back capacity ends at once",
        "preemption/plan.py",
        "        preempted = [gang for gang in nomination.victims if gang not in nomination.revoked_from]",
        "        preempted = nomination.victims",
        first=_LOANS,
    ),
    Bug(
        "the next leader does not go on to take back capacity",
        "preemption/plan.py",
        "                record.revoked\n                or (gang.protection < preemptor.group.preempting_priority and",
        "                (gang.protection < preemptor.group.preempting_priority and",
        first=_LOANS,
    ),
    Bug(
        "the next leader takes back capacity as if it preempted",
        "preemption/plan.py",
        "                nomination.revoked_from.add(gang)",
        "                pass",
        first=_LOANS,
    ),
    Bug(
        "borrowers that the group could preempt are listed twice",
        "preemption/potential_victims.py",
        "            if gang.in_transition or (preempts and gang.protection < group.preempting_priority):",
        "            if gang.in_transition:",
        first=_LOANS,
    ),
    Bug(
        "pods that have a place of their own count as borrowers when others of their gang borrow",
        "preemption/preemption.py",
        "seat for gang in gangs for seat in gang.unsent_seats]",
        "seat for gang in gangs for seat in gang.unbound_seats]",
        first="unit/coordinator/test_loans.py",
    ),
)
