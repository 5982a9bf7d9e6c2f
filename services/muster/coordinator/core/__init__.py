"""The coordinator's rules: a pure state machine. Events in, effects out; no I/O, no clock, no threads.

Theory of operation. `machine.Machine.step(events, now)` is the main loop:

1. Every event changes the `cache` (gangs, ledger, topology trees), or ends a call or a write that was under way.
   Changes that may let a pending group start are passed to `queue.wake`.
2. `reconcile` visits every gang and group that a change may concern, and runs the pre-enqueue check
   (`queue/pre_enqueue`). A group that passes is in the `queue`: active, in backoff, or unschedulable until an event
   could help it (`queue/wake`).
3. When placement is free, the head of the queue becomes one solve request (`solve/solve`, `solve/request`), with
   groups of namespaces whose turn it is, so that no tenant's gangs delay all others (`queue/turns`). Of groups
   with equal requests that had no place, only representatives are tried (`queue/equivalence`). Several replicas get
   requests at the same time if their groups cannot want the same nodes (`solve/concurrent`).
4. Answers are validated against members, ledger and topology constraints (`solve/request`); seats are reserved and
   the permit, with the members' ranks, is written to etcd (`permits/permits`). What is durable is bound
   (`permits/binding`); gangs that start together and have claims by one call (`permits/starts`). A new leader takes up
   recorded permits.
5. NonStrict gangs hold reservations while they wait for the rest, until they start, time out, or release them for an
   group ahead of them in the queue (`hold/hold_and_wait`).
6. For a group that has no place, `preemption/preemption` asks placement which potential victims would make it fit:
   lower priority gangs, or gangs behind it that hold reservations. `preemption/potential_victims` lists them in their
   order; the selection is placement's (`muster.placement.preemption`) and is validated. A starving group
   gets a backfill reservation (`backfill/reservation`): capacity that is expected to become free. Either
   becomes a plan (`preemption/plan`): capacity is nominated (`preemption/nomination`), victims are evicted
   (`preemption/eviction`). Started gangs that cannot be completed are evicted, or are potential victims of earlier
   ones (`preemption/repair`).
7. Every claim on capacity has an end (I13): nominations expire (`preemption/plan`), reservations do and are followed by
   a pause (`backfill/reservation`), waits have a longest time and a share (`hold/hold_and_wait`), and a preemptor whose
   plans are in vain pauses longer each time (`preemption/plan`).
8. A gang that has its minimum shrinks before it is evicted, and grows behind all groups that lack theirs: in batches,
   and not for a while after it was shrunk (`elastic/growth`).
9. `report` tells users reasons that have settled, as conditions and events, and dialects each gang's progress.

A step is one change of the state. Long ones run in slices, between which the event loop has other work (`slices`, I12).

State of gangs and groups is split into values with one owner each (`gang/state`, `gang/gang`). Phases are derived
(`gang.gang.Gang.phase`), never stored, so they cannot disagree with the facts that they sum up.
"""
