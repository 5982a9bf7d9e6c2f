"""When gangs start: a pure state machine. Events in, effects out; no I/O, no clock, no threads.

Theory of operation. `machine.Machine.step(events, now)` is the whole of it:

1. Every event changes what is known (`knowledge`), or ends something that was under way.
2. Every gang that was touched is looked at once (`upkeep`): may it be tried (`gathering`)? Then it is in the `queue`.
3. If no solve is under way, the head of the queue goes to placement as one batch (`solving`).
4. An answer is checked against members and `ledger` (`answers`), reserved, and handed out to be made durable
   (`permits`); what is durable is bound (`binding`).
5. What users should be told is told when it has stood for a moment (`reasons`, `reports`).

Phases are derived (`model.Group.phase`), never stored, so they cannot disagree with the facts that they sum up.
"""
