"""Stories that went wrong once, as the simulator told them."""

import pytest

from simulation.acts import read
from simulation.play import play

FOUND = {
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
}


@pytest.mark.parametrize("story", FOUND.values(), ids=FOUND.keys())
def test_it_holds_now(story: str) -> None:
    play(read(story))
