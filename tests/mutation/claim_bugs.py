"""Planted bugs of claims on capacity: rights to preempt, and the ends of nominations, reservations and holds (I13)."""

from mutation.bug import Bug

_RIGHTS = "unit/coordinator/test_right_to_preempt.py"
_RESERVATIONS = "unit/coordinator/test_reservations_end.py"
_HOLDS = "unit/coordinator/test_holds_end.py"
_MINIMUM = "unit/coordinator/test_minimum_resources_starve.py"
_PLANS = "unit/coordinator/test_plans_end.py"

CLAIM_BUGS = (
    Bug(
        "one pod of high priority lets all of its gang preempt",
        "gang/gang.py",
        "else min(self.live_priorities, default=0)",
        "else max(self.live_priorities, default=0)",
        first=_RIGHTS,
    ),
    Bug(
        "a declared priority is a right to preempt",
        "gang/gang.py",
        """        declared = self.facts.priority if self.trusts_declarations and self.facts is not None else None
        return declared if""",
        """        declared = self.facts.priority if self.facts is not None else None
        return declared if""",
        first=_RIGHTS,
    ),
    Bug(
        "of gangs that block each other the one with the lower declared priority makes way",
        "preemption/repair.py",
        "key=lambda gang: gang.group.repair_key, default=None)",
        "key=lambda gang: gang.group.key, default=None)",
        first="unit/coordinator/test_repair_policy.py",
    ),
    Bug(
        "a gang is protected by the least important of its pods",
        "gang/gang.py",
        "        highest = max(self.live_priorities, default=0)\n",
        "        highest = min(self.live_priorities, default=0)\n",
        first=_RIGHTS,
    ),
    Bug(
        "pods that are critical to the system are victims",
        "preemption/potential_victims.py",
        "if level < min(right, SYSTEM_CRITICAL_PRIORITY)",
        "if level < right",
        first=_RIGHTS,
    ),
    Bug(
        "a gang that runs below its minimum has started when its eviction is cancelled",
        "preemption/plan.py",
        "        if gang.permit.granted or gang.bound_by_others:\n",
        "        if gang:\n",
        first="simulation/test_found_scenarios.py",
    ),
    Bug(
        "a plan goes on although its group was edited to never preempt",
        "preemption/plan.py",
        "            or (nomination.victims and not nomination.ready and not may_preempt(group))\n",
        "",
        first="simulation/test_found_scenarios.py",
    ),
    Bug(
        "a plan waits for its victims for ever",
        "preemption/plan.py",
        "        self._timeout = rules.eviction_timeout_seconds\n",
        '        self._timeout = float("inf")\n',
        first=_PLANS,
    ),
    Bug(
        "a plan in vain is followed by the next one at once",
        "preemption/plan.py",
        "            group.preemption.postpone(now.monotonic_seconds + pause)\n",
        "",
        first=_PLANS,
    ),
    Bug(
        "a plan goes on although a victim got a member of the preemptor's priority",
        "preemption/plan.py",
        "                gang.eviction.preemptor == nomination.owner and gang.protection >= group.right\n",
        "                False\n",
        first="simulation/test_found_scenarios.py",
    ),
    Bug(
        "a new leader evicts gangs whole of which spare pods were to go",
        "preemption/plan.py",
        " and record.preempted_by == record.evicted_for\n",
        "\n",
        first="simulation/test_found_scenarios.py",
    ),
    Bug(
        "labelled pods are held beyond the share of the cluster",
        "hold/hold_and_wait.py",
        """        class_id = split_kind(role.class_id)[0] if role is not None else ""\n""",
        """        class_id = role.class_id if role is not None else ""\n""",
        first="simulation/test_found_scenarios.py",
    ),
    Bug(
        "plans in vain are not counted",
        "preemption/plan.py",
        """            effects.append(ClaimEnded("nomination", "capacity_taken"))\n""",
        "",
        first=_PLANS,
    ),
    Bug(
        "the limit of evictions per hour counts plans, not pods",
        "preemption/eviction.py",
        "            self._tokens -= pods\n",
        "            self._tokens -= 1\n",
        first=_PLANS,
    ),
    Bug(
        "nobody is told which pods took the capacity of evicted ones",
        "cache/cache.py",
        "        self._note_arrivals(batch)\n",
        "",
        first=_PLANS,
    ),
    Bug(
        "a backfill reservation never ends",
        "backfill/reservation.py",
        "expires_at = now.monotonic_seconds + most + (OVERRUN_SECONDS if known else 0.0)",
        "expires_at = math.inf",
        first=_RESERVATIONS,
    ),
    Bug(
        "a reservation that expired is made again at once",
        "backfill/reservation.py",
        "        pause = 0.0 if chosen_anew else",
        "        pause = 0.0 if True else",
        first=_RESERVATIONS,
    ),
    Bug(
        "starving groups take turns in withholding capacity in vain",
        "backfill/reservation.py",
        "        if pause_seconds > 0:\n",
        "        if False:\n",
        first=_RESERVATIONS,
    ),
    Bug(
        "a declared run time is believed although it was overrun",
        "backfill/expected_completions.py",
        "pod.expected_seconds <= 0 or gang.run_time.overran or _overrun(pod, now) > OVERRUN_SECONDS",
        "pod.expected_seconds <= 0",
        first=_RESERVATIONS,
    ),
    Bug(
        "a gang that overran its run time may backfill",
        "preemption/nomination.py",
        "    if any(gang.run_time.overran for gang in group.gangs):\n        return math.inf\n",
        "",
        first=_RESERVATIONS,
    ),
    Bug(
        "all of the cluster is reserved whatever its share",
        "backfill/reservation.py",
        "if share > self._rules.max_reserved_share:",
        "if False:",
        first=_RESERVATIONS,
    ),
    Bug(
        "capacity is reserved until pods end that run for days",
        "backfill/expected_completions.py",
        "if horizon < end < math.inf:",
        "if False:",
        first=_RESERVATIONS,
    ),
    Bug(
        "a waiting-time is not bounded",
        "cache/cache.py",
        "        facts = _with_bounded_wait(facts, self._rules.max_waiting_time_seconds)\n",
        "",
        first=_HOLDS,
    ),
    Bug(
        "each gang may hold the whole share",
        "hold/hold_and_wait.py",
        "    _, held = capacity.used_by(_reserved_without_permit(cache))\n",
        "    _, held = capacity.used_by(())\n",
        first=_HOLDS,
    ),
    Bug(
        "gangs wait for minimum resources for ever",
        "queue/pre_enqueue.py",
        "    return None if gang.timing.waived else lacks_free_resources(gang, ledger)",
        "    return lacks_free_resources(gang, ledger)",
        first=_MINIMUM,
    ),
    Bug(
        "a gang starves anew once its minimum resources are waived",
        "backfill/reservation.py",
        "if min(short_since, default=now) + self._after_seconds <= now:",
        "if False:",
        first=_MINIMUM,
    ),
)
