"""Scenarios that went wrong once, as the simulator told them."""

import pytest

from simulation.actions import read
from simulation.runner import play

FOUND = {
    "nobody speaks for a group that has room of its own": """
        create slot=5 priority=2 group=5
        sleep which=1
        create size=1 cpu=1
        create slot=4 group=5
        intrude
        calm
        intrude
        fail_evict which=2
        move_pod slot=5
        plain cpu=1 priority=1
        crash
        effect
        effect
        replicas count=1
        leave
    """,
    "no member is left when the answer for them comes": """
        create size=1 slack=3 cpu=1 mode=1
        delete_pod
        resize
    """,
    "nobody is woken for a deadline while the permit is written": """
        create mode=1
        effect
        time scale=2 more=1
    """,
    "a gang group can be tried: all its gangs are told so": """
        create slot=1 group=5
        create slot=2
        create group=5
    """,
    "the partners are told when members come": """
        create slot=5 group=5
        create slot=4 size=1 missing=5 group=5
        calm scale=1
        members slot=4
    """,
    "a marked pod with a problem of its own is told the problem": """
        create size=4 slack=3 cpu=1 mode=1
        spoil
        calm scale=3
    """,
    "a gang that timed out is not satisfied after a restart because somebody else bound a pod of it": """
        create size=3 cpu=1 mode=1
        effect
        time scale=2 more=1
        effect
        bind_elsewhere
        delete_pod which=1
        create
        crash writes=1
    """,
    "a marked pod that is given to a running gang does not wait in silence": """
        create
        create slot=1 size=4 cpu=1 mode=1
        calm scale=3
        move_pod which=1
    """,
    "a time-out that becomes durable when its gang was declared anew marks nobody": """
        sleep
        create size=3 mode=1 waiting=1
        calm scale=3 more=1
        time scale=3 more=2
        declare_anew
        resize cpu=1
    """,
    "a pod that held nothing does not start the clock of a gang that waits since an earlier leader": """
        create slot=3 size=3 cpu=1 mode=1 waiting=3
        run
        time scale=4
        calm scale=4 more=1
        stall scale=4
        time scale=4 more=3
        crash
        gate slot=3
    """,
    "room is not kept for who has started with all that it was kept for": """
        cordon which=1
        create size=1 cpu=1 mode=1 waiting=1
        create slot=1 size=1 slack=3 cpu=1
        cordon
        cordon which=1
    """,
    "a gang that holds reservations and is started by others does not keep them for ever": """
        create size=3
        create slot=5 size=4 mode=1
        run
        bind_elsewhere
        run
        minimum slot=5
        intrude
    """,
    "a victim of which half is gone is not evicted for somebody who runs": """
        create size=2
        effect
        effect
        effect
        effect
        fail_evict
        create slot=1 size=4 priority=1 mode=1
        plain priority=1
        effect
        effect
        effect
        effect
        effect
        effect
        effect
        effect which=1
        effect
        effect which=5
        effect
        crash writes=2
    """,
    "a gang that timed out stays so when it is declared anew with the same pods, also after a restart": """
        lose_node
        create slot=3 size=1 cpu=1 mode=1
        effect
        stall scale=3
        effect
        declare_anew slot=3
        effect
        crash
    """,
    "nobody is evicted for room that another is promised": """
        create size=2 missing=4 priority=1
        create slot=3 size=3 slack=3 cpu=2 expected=1 group=5
        create slot=2 size=1 cpu=2 group=5 budget=1
        run
        time scale=3 more=3
        not_found
        plain cpu=1 priority=1
        create
    """,
    "an answer that the ledger refuses is not asked for again and again": """
        create slot=2 size=2 slack=3 priority=1
        create slot=1
        lose_node
        create size=3 priority=1 mode=1
        plain which=2 priority=2
        calm
        lag
        create slot=2
        run
        lag
        node
        effect
        effect
        node which=1 cpu=4
        plain which=2 priority=2
        stall scale=4
        lag
        run
    """,
    "a victim may be deleted while it is asked whether it could go": """
        create slot=5 group=5
        node which=2
        create slot=4 size=4 group=5
        lose_node which=2
        calm
        plain cpu=1 priority=1
        effect
        delete_pod
    """,
    "room that drains is not kept for who may not have it by another tree": """
        create slot=1
        create size=5 missing=5 slack=4 priority=1
        tree
        fail_solve
        effect
        effect
        intrude
        effect
        node which=2
        delete_pod slow=1
        create slot=2 size=3 slack=3 priority=1 divided=1
        calm scale=3 more=2
        tree split=1
    """,
    "a gang that was to start anew and did not has ranks": """
        create slot=1 size=2 repair=1 expected=1 divided=1
        create
        tree
        not_found
        scatter
        shrink
        crash writes=1
        create slot=2
        not_found
        results_twice
        time scale=5
        expire
    """,
    "evictions are tried again when binding could not be reached": """
        create size=5
        run
        plain cpu=1 priority=1
        effect
        effect
        effect
        break_call
    """,
}


@pytest.mark.parametrize("scenario", FOUND.values(), ids=FOUND.keys())
def test_it_holds_now(scenario: str) -> None:
    play(read(scenario))
