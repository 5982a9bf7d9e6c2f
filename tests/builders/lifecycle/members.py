"""Members of a gang in given phases."""

from typing import Any, Final

from muster.dialects.marks import PodAge
from muster.dialects.registry import gang_marks
from muster.lifecycle.pod_groups.members import Member

_PHASES: Final = {"p": "Pending", "b": "Pending", "r": "Running", "s": "Succeeded", "f": "Failed"}


def members(pods: str, gang_id: str, *, without_node: str = "p", **more: Any) -> list[Member]:
    """One pod per letter: pending, bound, running, succeeded, failed; an upper-case letter is being deleted.
    `without_node`: letters of pods that have no node.
    """
    return [
        Member(
            f"uid-{number}",
            "ml",
            f"w-{number}",
            gang_id,
            gang_marks("ml", None, None),
            PodAge(number, f"w-{number}", f"uid-{number}"),
            phase=_PHASES[letter.lower()],
            node="" if letter.lower() in without_node else "n",
            deleting=letter.isupper(),
            **more,
        )
        for number, letter in enumerate(pods)
    ]
