"""Which node labels gangs ask topology trees for, and which of them get one: there may be more than there can be trees.

Every replica must offer the same trees, whatever it saw first, so those labels count that the oldest gangs name.
"""

from collections import Counter
from collections.abc import Iterable

from muster.gangs.facts import GangFacts
from muster.topology.trees import MOST_KEY_TREES, key_of_tree


class KeyTrees:
    """The labels by gang."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[int, str, str]] = {}  # gang id -> its creation, its id, the label
        self._gangs: Counter[str] = Counter()  # by label

    def take(self, changed: Iterable[GangFacts], gone: Iterable[str]) -> bool:
        """Gangs changed, or are gone. True: other labels are asked for now, or the same by gangs of another age."""
        before = set(self._gangs)
        aged = False
        for facts in changed:
            key = key_of_tree(facts.tree)
            asks = (facts.created_seconds, facts.id, key) if key else None
            aged |= asks != self._asked.get(facts.id)
            self._drop(facts.id)
            if asks is not None:
                self._asked[facts.id] = asks
                self._gangs[key] += 1
        for gang_id in gone:
            aged |= gang_id in self._asked
            self._drop(gang_id)
        return before != set(self._gangs) or (aged and len(self._gangs) > MOST_KEY_TREES)

    def labels(self) -> list[str]:
        """Those that get a tree, in the order of the alphabet."""
        if len(self._gangs) <= MOST_KEY_TREES:
            return sorted(self._gangs)
        oldest: dict[str, None] = {}
        for _, _, key in sorted(self._asked.values()):
            oldest[key] = None
            if len(oldest) == MOST_KEY_TREES:
                break
        return sorted(oldest)

    def _drop(self, gang_id: str) -> None:
        asked = self._asked.pop(gang_id, None)
        if asked is not None:
            self._gangs[asked[2]] -= 1
            if not self._gangs[asked[2]]:
                del self._gangs[asked[2]]
