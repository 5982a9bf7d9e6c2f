"""Trees of CompositePodGroups and PodGroups, which name their parents, and what they mean for the gangs below.

Objects arrive in any order. A change concerns the gangs of its whole tree, which are computed again; in a tree with too
many PodGroups all gangs wait, and a change concerns at most MAX_GANGS + 1 of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from muster.dialects import native
from muster.dialects.composites import (
    MAX_DEPTH,
    MAX_GANGS,
    Ancestry,
    CompositeSpec,
    TreeProblem,
    parent_of,
    problem_of,
    read_composite,
    starting_together,
)
from muster.dialects.definitions import Definition
from muster.gangs.quoting import quoted

CompositeKey = tuple[str, str]
"""Namespace and name."""
_Child = tuple[bool, str]
"""Whether it is a CompositePodGroup, and its name."""
_NO_PARENT: Final = ""


class CompositeGroups:
    """CompositePodGroups by name, and the PodGroups and CompositePodGroups that name each. Entries end with the objects
    (I11).
    """

    def __init__(self) -> None:
        self._composites: dict[CompositeKey, CompositeSpec] = {}
        self._of_composite: dict[str, CompositeKey] = {}
        self._children: dict[CompositeKey, dict[_Child, None]] = {}
        self._inner: dict[CompositeKey, dict[CompositeKey, None]] = {}
        """The children that are CompositePodGroups."""
        self._parents: dict[CompositeKey, str] = {}
        self._of_group: dict[str, CompositeKey] = {}
        self._newest: dict[tuple[bool, str, str], str] = {}
        """Uids of the newest objects by kind, namespace and name."""

    def __len__(self) -> int:
        return len(self._composites) + len(self._parents)

    # -- objects; each returns the ids of the gangs that may change

    def put_composite(self, definition: Definition) -> list[str]:
        """Add or update a CompositePodGroup."""
        spec, key = read_composite(definition), (definition.namespace, definition.name)
        if self._composites.get(key) == spec and self._of_composite.get(definition.uid) == key:
            return []
        concerned = self.drop_composite(self._newest.get((True, *key), definition.uid))
        self._composites[key] = spec
        self._of_composite[definition.uid] = key
        self._newest[True, *key] = definition.uid
        self._link(key, spec.parent, (True, key[1]))
        return list(dict.fromkeys([*concerned, *self._gangs_of_tree(key)]))

    def drop_composite(self, uid: str) -> list[str]:
        """Remove a CompositePodGroup; another one may have its name by now."""
        key = self._of_composite.pop(uid, None)
        if key is None or self._newest.get((True, *key)) != uid:
            return []
        del self._newest[True, *key]
        concerned = self._gangs_of_tree(key)
        self._unlink(key, self._composites.pop(key).parent, (True, key[1]))
        return concerned

    def put_group(self, definition: Definition) -> list[str]:
        """Add or update a PodGroup of Kubernetes."""
        key, parent = (definition.namespace, definition.name), parent_of(definition.spec)
        if self._of_group.get(definition.uid) == key and self._parents.get(key) == parent:
            return []
        concerned = self.drop_group(self._newest.get((False, *key), definition.uid))
        if parent == _NO_PARENT:
            return concerned
        self._parents[key] = parent
        self._of_group[definition.uid] = key
        self._newest[False, *key] = definition.uid
        self._link(key, parent, (False, key[1]))
        return list(dict.fromkeys([*concerned, *self._gangs_of_tree((key[0], parent))]))

    def drop_group(self, uid: str) -> list[str]:
        """Remove a PodGroup."""
        key = self._of_group.pop(uid, None)
        if key is None or self._newest.get((False, *key)) != uid:  # another one may have its name by now
            return []
        del self._newest[False, *key]
        parent = self._parents.pop(key)
        concerned = self._gangs_of_tree((key[0], parent))
        self._unlink(key, parent, (False, key[1]))
        return concerned

    # -- gangs

    def ancestry(self, definition: Definition) -> Ancestry | None:
        """The CompositePodGroups above a PodGroup; None if it names none."""
        namespace, parent = definition.namespace, parent_of(definition.spec)
        if parent == _NO_PARENT:
            return None
        chain, problem = self._chain(namespace, parent, f"PodGroup {quoted(f'{namespace}/{definition.name}')}")
        if problem is not None:
            return Ancestry(problem=problem.message)
        children = self._children_of(chain)
        inside = starting_together(chain)
        gangs: list[str] = []
        if inside:
            gangs = sorted(self._gangs_below((namespace, inside[-1].name), MAX_GANGS + 1))
            if len(gangs) > MAX_GANGS:
                return Ancestry(problem=_too_many(inside[-1]))
        problem = problem_of(chain, children)
        return Ancestry(tuple(chain), children, tuple(gangs), problem.message if problem is not None else "")

    # -- CompositePodGroups

    def problem(self, key: CompositeKey) -> TreeProblem | None:
        """The problem that keeps the groups in a CompositePodGroup from starting; None: its tree has none."""
        own = self._composites[key]
        chain, problem = self._chain(key[0], own.name, own.label)
        if problem is not None and len(chain) <= MAX_DEPTH:
            return problem
        if len(chain) > MAX_DEPTH:
            names = " below ".join(quoted(each.name) for each in chain)
            return TreeProblem(f"{own.label} is below {MAX_DEPTH} others, one too many: {names}; leave out one")
        inside = starting_together(chain)
        if inside and len(list(self._gangs_below((key[0], inside[-1].name), MAX_GANGS + 1))) > MAX_GANGS:
            return TreeProblem(_too_many(inside[-1]))
        return problem_of(chain, self._children_of(chain))

    def minimum(self, key: CompositeKey) -> int:
        """How many groups must start together; 0: the CompositePodGroup is basic."""
        return self._composites[key].minimum

    def parent(self, key: CompositeKey) -> CompositeKey | None:
        """The CompositePodGroup that contains one, if it names one."""
        parent = self._composites[key].parent if key in self._composites else _NO_PARENT
        return (key[0], parent) if parent != _NO_PARENT else None

    def parent_of_group(self, key: CompositeKey) -> CompositeKey | None:
        """The CompositePodGroup that contains a PodGroup, if it names one."""
        parent = self._parents.get(key, _NO_PARENT)
        return (key[0], parent) if parent != _NO_PARENT else None

    def children(self, key: CompositeKey) -> Iterator[tuple[bool, CompositeKey]]:
        """The groups that name a CompositePodGroup as their parent, and whether each is a CompositePodGroup."""
        for is_composite, name in self._children.get(key, ()):
            yield is_composite, (key[0], name)

    def composites_in(self, key: CompositeKey) -> Iterable[CompositeKey]:
        """The CompositePodGroups that name a CompositePodGroup as their parent."""
        return self._inner.get(key, ())

    def gangs_below(self, key: CompositeKey) -> Iterator[str]:
        """Ids of the gangs of the PodGroups below a CompositePodGroup; of more than are supported, a part."""
        return self._gangs_below(key, MAX_GANGS + 1)

    def _chain(self, namespace: str, at: str, label: str) -> tuple[list[CompositeSpec], TreeProblem | None]:
        """The CompositePodGroups from this name up, and why they are not all that are above the object `label`."""
        chain: list[CompositeSpec] = []
        below = label
        while at != _NO_PARENT:
            if any(each.name == at for each in chain):
                names = " below ".join(quoted(each.name) for each in (*chain, *chain[:1]))
                return chain, TreeProblem(f"its CompositePodGroups form a cycle: {names}; change a parent")
            spec = self._composites.get((namespace, at))
            if spec is None:
                parent = f"CompositePodGroup {quoted(f'{namespace}/{at}')}"
                missing = f"{parent}, the parent of {below}, does not exist yet: create it"
                return chain, TreeProblem(missing, invalid=False)
            chain.append(spec)
            if len(chain) > MAX_DEPTH:
                names = " below ".join(quoted(each.name) for each in chain)
                too_deep = f"more than {MAX_DEPTH} CompositePodGroups are above {label}: {names}; leave out some"
                return chain, TreeProblem(too_deep)
            below, at = spec.label, spec.parent
        return chain, None

    def _children_of(self, chain: Sequence[CompositeSpec]) -> tuple[int, ...]:
        return tuple(len(self._children.get((each.namespace, each.name), ())) for each in chain)

    def _link(self, key: CompositeKey, parent: str, child: _Child) -> None:
        if parent != _NO_PARENT:
            self._children.setdefault((key[0], parent), {})[child] = None
            if child[0]:
                self._inner.setdefault((key[0], parent), {})[key] = None

    def _unlink(self, key: CompositeKey, parent: str, child: _Child) -> None:
        siblings = self._children.get((key[0], parent))
        if siblings is not None:
            siblings.pop(child, None)
            if not siblings:
                del self._children[key[0], parent]
        inner = self._inner.get((key[0], parent))
        if child[0] and inner is not None:
            inner.pop(key, None)
            if not inner:
                del self._inner[key[0], parent]

    def _gangs_of_tree(self, key: CompositeKey) -> list[str]:
        """Gangs of the whole tree of a CompositePodGroup, at most one more than are supported."""
        seen = {key}
        for _ in range(2 * MAX_DEPTH):  # of trees that are too deep, a part
            spec = self._composites.get(key)
            above = (key[0], spec.parent) if spec is not None and spec.parent else key
            if above in seen:
                break
            seen.add(above)
            key = above
        return list(self._gangs_below(key, MAX_GANGS + 1))

    def _gangs_below(self, key: CompositeKey, most: int) -> Iterator[str]:
        seen, found, waiting = {key}, 0, [key]
        while waiting:
            at = waiting.pop()
            for is_composite, name in self._children.get(at, ()):
                below = (at[0], name)
                if not is_composite:
                    yield f"{native.NAME}/{at[0]}/{name}"
                    found += 1
                    if found >= most:
                        return
                elif below not in seen:
                    if len(seen) > most:  # with so many CompositePodGroups there are too many gangs, or none
                        return
                    seen.add(below)
                    waiting.append(below)


def _too_many(root: CompositeSpec) -> str:
    return f"more than {MAX_GANGS} PodGroups are below {root.label}: at most {MAX_GANGS} are supported; make fewer"
