"""Bugs that somebody could write into the core, one by one: where, what, and what it would be instead."""

from typing import NamedTuple


class Bug(NamedTuple):
    """`source` is found exactly once in the file of services/muster/coordinator/core."""

    what: str
    file: str
    source: str
    instead: str


BUGS = (
    Bug(
        "a permit is acted upon before it is durable",
        "machine.py",
        """                    self._effects.append(self._permits.permit(group, gangs, self._now))
""",
        """                    self._effects.append(self._permits.permit(group, gangs, self._now))
                    self._permitted(group, gangs)
""",
    ),
    Bug(
        "a reservation is not released when its pod is deleted",
        "knowledge.py",
        "self.release(gang, [seat.uid] if seat is not None else [])\n        self.touch(gang)\n",
        "self.touch(gang)\n",
    ),
    Bug(
        "room of deleted pods is not free",
        "ledger.py",
        "            self.reserved.pop(uid, None)\n        return self._free(uids)",
        "            self.reserved.pop(uid, None)\n        return False",
    ),
    Bug(
        "only the first gang of a group is asked whether it may start",
        "gathering.py",
        "    for gang in gangs:\n        reason = _lacks(gang, known, trees, ledger)",
        "    for gang in gangs[:1]:\n        reason = _lacks(gang, known, trees, ledger)",
    ),
    Bug(
        "one-sided groups are believed",
        "gathering.py",
        "    if partner.facts.group != gang.facts.group:",
        "    if False:",
    ),
    Bug(
        "the schedule cycle does not advance",
        "cycle.py",
        "        self.number += 1\n",
        "",
    ),
    Bug(
        "the waiting-time counts from the last look, not from the first reservation",
        "waiting.py",
        "            if gang.seats and gang.waiting_since is None:",
        "            if gang.seats:",
    ),
    Bug(
        "the waiting-time begins anew with every leader",
        "waiting.py",
        "gang.waiting_since = now.monotonic_seconds - waited",
        "gang.waiting_since = now.monotonic_seconds",
    ),
    Bug(
        "when a gang has waited too long, only its own reservations are given back, not its group's",
        "waiting.py",
        "        self.give_up(group)\n        self.groups.pop(group, None)\n",
        "        self._give_back(late, list(late.seats))\n",
    ),
    Bug(
        "a new leader forgets who is still to be marked as timed out",
        "waiting.py",
        "gang.timing_out = {name.uid for name in record.timing_out if name.uid in gang.waiting}",
        "gang.timing_out = set()",
    ),
    Bug(
        "marked pods are tried again",
        "model.py",
        "held_back = bool(pod.problem) or pod.timed_out or pod.uid in self.timing_out",
        "held_back = bool(pod.problem)",
    ),
    Bug(
        "a group of NonStrict gangs starts when one of them has its minimum",
        "model.py",
        "return self.accumulates and all(gang.lacking <= 0 for gang in self.gangs)",
        "return self.accumulates and any(gang.lacking <= 0 for gang in self.gangs)",
    ),
    Bug(
        "a group accumulates although one of its gangs is Strict",
        "model.py",
        "return all(not gang.permitted and gang.facts is not None and not gang.facts.starts_whole",
        "return any(not gang.permitted and gang.facts is not None and not gang.facts.starts_whole",
    ),
    Bug(
        "reservations on nodes that are gone are kept by gangs that wait",
        "waiting.py",
        "                    if ledger.untenable(held.seat):",
        "                    if False:",
    ),
    Bug(
        "what went while the permit was written is not seen",
        "machine.py",
        "        if self._overtaken(group, gangs):",
        "        if False:",
    ),
    Bug(
        "a refused permit keeps its seats",
        "machine.py",
        "        self._take_seats_back(group, decision.gangs)\n        for gang",
        "        for gang",
    ),
    Bug(
        "seats that binding acknowledged are dropped when a snapshot does not show them yet",
        "model.py",
        "        if pod.uid not in self.seats and pod.uid not in self.acked:",
        "        if pod.uid not in self.seats:",
    ),
    Bug(
        "a new leader takes every record for a permit",
        "recovery.py",
        "    if record.state is RecordState.UNPERMITTED:\n        return\n",
        "",
    ),
    Bug(
        "a new leader believes records of gangs that were declared anew",
        "recovery.py",
        "        if gang is None or not _same(gang, record):",
        "        if gang is None:",
    ),
    Bug(
        "a new leader does not bind what the one before had permitted",
        "machine.py",
        "            self._effects += self._binds.send(gang, gang.outstanding)\n",
        "            pass\n",
    ),
    Bug(
        "a result of an earlier seat is taken for one of the present seat",
        "binding.py",
        "            if gang is None or held is None or not _awaited(held, result):",
        "            if gang is None or held is None:",
    ),
    Bug(
        "a pod that somebody else bound elsewhere is taken for one that is where it was decided",
        "binding.py",
        "gang.acknowledge(result.uid, result.node)",
        "gang.acknowledge(result.uid, planned)",
    ),
    Bug(
        "binds are not sent again when binding could not be reached",
        "binding.py",
        "                self._retry(gang, held, now + CALL_RETRY_SECONDS)\n",
        "",
    ),
    Bug(
        "pods that have ended count toward the minimum",
        "model.py",
        "return len(self.waiting) + len(self.seats) + len(self.acked) + len(self.bound)",
        "return len(self.waiting) + len(self.seats) + len(self.acked) + sum(bool(p.node) for p in self.pods.values())",
    ),
    Bug(
        "placement is believed without a look into the ledger",
        "answers.py",
        "    problem = ledger.refusal(demand, withheld)\n",
        "",
    ),
    Bug(
        "placement is believed to have kept hard constraints",
        "answers.py",
        "        if broken is not None:",
        "        if False:",
    ),
    Bug(
        "placement is not told where the others of a gang are",
        "questions.py",
        "facts.tree, gang.constraints, placed(gang), avoided)",
        "facts.tree, facts.constraints, (), avoided)",
    ),
    Bug(
        "what contradicts itself is asked of placement",
        "gathering.py",
        "            return reason\n    return _contradictory(gang, trees)",
        "            return reason\n    return None",
    ),
    Bug(
        "nobody is looked at when a tree changes",
        "knowledge.py",
        "        if self.trees.put(batch.trees) or dropped:",
        "        if self.trees.put(batch.trees) and False:",
    ),
    Bug(
        "an answer is taken before that of who stands before",
        "in_flight.py",
        "        return self._may_want(before, nodes)",
        "        return False",
    ),
    Bug(
        "who had its room taken is overtaken by those behind it that are under way",
        "in_flight.py",
        "            first is not group and first.gangs and first.key < key",
        "            False and first.key < key",
    ),
    Bug(
        "room that is given twice by two solves is trouble, and backed off",
        "solving.py",
        "seated.node in attempt.taken:",
        "False:",
    ),
    Bug(
        "help that came while a group was solved beside others is missed",
        "solving.py",
        "                self._queue.missed_help()\n",
        "                pass\n",
    ),
    Bug(
        "solves under way at the same time go on for a replica that is not there any more",
        "machine.py",
        "self._solving.under_way >= self._replicas or",
        "self._solving.under_way >= 3 or",
    ),
    Bug(
        "pods that mind each other are placed at the same time",
        "apart.py",
        "    return not _named(one).isdisjoint(other.selected_by) or not _named(other).isdisjoint(one.selected_by)",
        "    return False",
    ),
    Bug(
        "others are evicted for room that hard constraints forbid",
        "making_room.py",
        "        if self._forbidden(attempt.group, result.runs):",
        "        if False:",
    ),
    Bug(
        "one bad question keeps all others from an answer",
        "solving.py",
        "            group.alone = True\n            self._queue.activate(group)\n",
        "            self._queue.back_off(group, now.monotonic_seconds)\n",
    ),
    Bug(
        "room is kept for who is to be divided in another way by now",
        "plans.py",
        "        if kept.divided_by != self._knowledge.divided_by(group):",
        "        if False:",
    ),
    Bug(
        "members are numbered anew with every permit",
        "numbering.py",
        "    kept = still_ranked(gang)\n",
        "    kept: Ranks = ()\n",
    ),
    Bug(
        "a new leader forgets the ranks",
        "recovery.py",
        "    gang.record = record\n    gang.ranks = dict(record.ranks)\n",
        "    gang.record = record\n",
    ),
    Bug(
        "a rank is given before the one who had it is gone",
        "numbering.py",
        "_free({rank for _, rank in kept})",
        "_free(set())",
    ),
    Bug(
        "a pod whose class changes keeps the seat of the old one in the books",
        "knowledge.py",
        "                self.helped |= self.ledger.reserve([resized])\n",
        "                pass\n",
    ),
    Bug(
        "who was found not to fit is not tried again when room comes",
        "queue.py",
        "        self._help_came = True\n        self.helps += 1\n",
        "        self.helps += 1\n",
    ),
    Bug(
        "records of gangs that are gone stay in etcd",
        "upkeep.py",
        "                effects.append(self._permits.persist(deletes=(gang.id,)))\n            self._reports",
        "                pass\n            self._reports",
    ),
    Bug(
        "what is half started waits behind the others",
        "model.py",
        "        return (0 if repairing else 1, -self.priority",
        "        return (1, -self.priority",
    ),
    Bug(
        "partners are not told what changed with a gang of their group",
        "upkeep.py",
        "for gang in dict.fromkeys([*touched, *(gang for group in groups for gang in group.gangs)]):",
        "for gang in touched:",
    ),
    Bug(
        "pods are told once why they wait, and not when that changes",
        "reports.py",
        "            elif before.text != said.text:\n                changed = True\n",
        "",
    ),
    Bug(
        "pods are evicted before it is durable that they are to be",
        "plans.py",
        "        return self._decide(plan, now)",
        "        return [*self._decide(plan, now), *self.durable(plan)]",
    ),
    Bug(
        "room that is kept for somebody is given to others",
        "kept_room.py",
        "        if not each.open_to(group, now):",
        "        if False:",
    ),
    Bug(
        "room is kept for who does not want it any more",
        "plans.py",
        "            if not self._wanted(kept):",
        "            if False:",
    ),
    Bug(
        "in a deadlock the first in the queue gives way",
        "victims.py",
        "other.key > key]",
        "other.key < key]",
    ),
    Bug(
        "gangs that wait for each other are not asked to give way",
        "victims.py",
        "        levels = self._offer_waiting(group, holding)",
        "        levels = 0",
    ),
    Bug(
        "gangs of the same priority are evicted",
        "victims.py",
        "enumerate(self._running.below(group.priority), start=first_level)",
        "enumerate(self._running.below(group.priority + 1), start=first_level)",
    ),
    Bug(
        "others are evicted for pods that never preempt",
        "questions.py",
        "    return not any(pod.never_preempts for gang in to_seat for pod in gang.waiting.values())",
        "    return True",
    ),
    Bug(
        "evictions are not tried again when binding could not be reached",
        "evictions.py",
        "                self._retry(gang, leaving, now + CALL_RETRY_SECONDS)\n",
        "                pass\n",
    ),
    Bug(
        "a new leader does not evict what was decided",
        "plans.py",
        "        return self._evictions.send(gang, there)",
        "        return []",
    ),
    Bug(
        "a gang that is evicted whole is still permitted",
        "plans.py",
        "                if gang.leaves_whole:\n                    unpermit(knowledge, gang)\n",
        "",
    ),
    Bug(
        "evictions go on for a gang that is gone",
        "plans.py",
        "            if gang.leaving and gang.evicted_for == kept.owner:",
        "            if False:",
    ),
    Bug(
        "a gang is repaired for ever although its policy is to start anew",
        "repairs.py",
        "        evict = facts.repair_policy is RepairPolicy.EVICT and",
        "        evict = False and",
    ),
    Bug(
        "work that outlasts the start of a starved gang uses the room that is kept for it",
        "kept_room.py",
        "        return not group.accumulates and now + longest_run(group) <= self.starts_at < math.inf",
        "        return True",
    ),
    Bug(
        "dialects are not told of a stage that is not a phase",
        "progress.py",
        "    return Stage.PREEMPTED if gang.preempted_by and not gang.permitted else _STAGES[phase]",
        "    return _STAGES[phase]",
    ),
    Bug(
        "dialects are told of the first stage only",
        "upkeep.py",
        "        if self._stages.get(gang) != standing:",
        "        if gang not in self._stages:",
    ),
    Bug(
        "a gang that can start again is told to be preempted still",
        "upkeep.py",
        '            gang.preempted_by = ""',
        "            pass",
    ),
    Bug(
        "a new leader does not know who a gang was preempted for",
        "recovery.py",
        "    gang.preempted_by = record.preempted_by\n",
        "",
    ),
    Bug(
        "who a gang was preempted for is not recorded",
        "permits.py",
        "        gang.kept_room,\n        gang.preempted_by,\n",
        '        gang.kept_room,\n        "",\n',
    ),
    Bug(
        "a gang begins anew with every look",
        "upkeep.py",
        "            gang.began_unix = gang.began_unix or now.unix_seconds",
        "            gang.began_unix = now.unix_seconds",
    ),
    Bug(
        "a gang that is evicted begins with what it had begun before",
        "plans.py",
        "    gang.began_unix = gang.ended_unix = 0.0\n",
        "",
    ),
    Bug(
        "pods are told tries that are not durable",
        "binding.py",
        "                gang.permitted_tries,\n",
        "                gang.tries,\n",
    ),
    Bug(
        "members that have a place are told without",
        "progress.py",
        "        return held.seat.node",
        '        return ""',
    ),
    Bug(
        "members that succeeded count always",
        "model.py",
        "        if not facts.counts_succeeded or not self.succeeded or self.counted >= facts.minimum:",
        "        if not facts.counts_succeeded:",
    ),
    Bug(
        "members that succeeded count for every gang",
        "model.py",
        "        if not facts.counts_succeeded or not self.succeeded or self.counted >= facts.minimum:",
        "        if self.counted >= facts.minimum:",
    ),
    Bug(
        "members that succeeded never count",
        "model.py",
        "        return max(1, facts.minimum - len(self.succeeded))",
        "        return facts.minimum",
    ),
    Bug(
        "pods that must be alike are not compared",
        "gathering.py",
        "    return unlike(gang, ledger.classes) or lacks_room_in_all(gang, ledger)",
        "    return lacks_room_in_all(gang, ledger)",
    ),
    Bug(
        "a gang does not wait for room in all",
        "gathering.py",
        "    return unlike(gang, ledger.classes) or lacks_room_in_all(gang, ledger)",
        "    return unlike(gang, ledger.classes)",
    ),
    Bug(
        "a gang waits for room in all although it holds it",
        "room_in_all.py",
        "        free = ledger.free_in_all(name) + theirs[name] if amount > asked[name] else amount",
        "        free = ledger.free_in_all(name) if amount > asked[name] else amount",
    ),
    Bug(
        "nobody who waits for room in all is looked at when room comes",
        "upkeep.py",
        "                if gang.group.gathering is not None:\n                    self._knowledge.touch(gang)\n",
        "                pass\n",
    ),
    Bug(
        "levels that are not named are those of the tree that there was first",
        "knowledge.py",
        "                gang.constraints = self.trees.constraints_of(gang.facts)\n",
        "",
    ),
    Bug(
        "others are evicted for gangs whose declaration forbids it",
        "questions.py",
        "    if any(gang.facts is not None and gang.facts.never_preempts for gang in to_seat):",
        "    if False:",
    ),
    Bug(
        "one pod is evicted of a gang that goes only whole",
        "victims.py",
        "    if gang.facts is not None and gang.facts.evicted_whole:\n        return 0\n",
        "",
    ),
    Bug(
        "events are called the same in all dialects",
        "reports.py",
        "event_reason(gang.id), note)",
        '"FailedScheduling", note)',
    ),
)
