"""When gangs start: a pure state machine. Events in, effects out; no I/O, no clock, no threads.

Theory of operation. `machine.Machine.step(events, now)` is the whole of it:

1. Every event changes what is known (`cache`), or ends something that was under way.
2. Every gang that was touched is looked at once (`upkeep`): may it be tried (`gathering`, `uniformity`, `room_in_all`)?
   Then it is in the `queue`.
3. If placement has nothing to do, the head of the queue goes there as one batch (`solving`, `questions`); of groups
   that had no place and want just the same, one speaks for all (`alike`). Of several replicas each has a batch, if
   there are groups that can be placed at the same time (`together`, `apart`); their answers are taken in queue order
   (`in_flight`).
4. An answer is checked against members, `ledger` and trees (`answers`, `divided`, `refusals`), reserved, and handed out
   to be made durable (`permits`, `decisions`), with the members' ranks (`numbering`); what is durable is bound
   (`binding`).
5. Gangs that hold what they get and wait for the rest do that in `waiting`, until they start, time out or give way.
6. For a group that has no place `preemption` asks who could make room: gangs of lower priority, gangs that wait behind
   it (`victims`), or what ends by itself (`draining`). What comes of that is a plan (`plans`): room is kept
   (`kept_room`), pods go (`evictions`). Started gangs that cannot be completed go by their policy (`repairs`).
7. What users should be told is told when it has stood for a moment (`reasons`, `reports`, `tree_reports`). How far a
   gang is, which its dialect may have words for, is told at every stage (`progress`).

Phases are derived (`model.Group.phase`), never stored, so they cannot disagree with the facts that they sum up.
"""
