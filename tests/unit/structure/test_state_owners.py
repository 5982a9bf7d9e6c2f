"""State of gangs and groups has owners: a field is assigned in one module, a transition is called by one package.

Both are checked on the source by name: an assignment to `<anything>.<field>`, or a mutating call on it, counts as one
to the state field of that name, except in modules that define a class with an attribute of that name themselves.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CORE = Path(__file__).parents[3] / "services/muster/coordinator/core"

STATE_MODULES = {
    "gang/state.py": {
        *("PodAction", "HeldSeat", "LeavingPod", "ScheduleCycle", "Attempts", "PermitState", "BindTrouble", "Hold"),
        *("Eviction", "Timing", "RunTime", "Growth", "PartGrowth"),
    },
    "gang/members.py": {"Members"},
    "gang/gang.py": {"Gang", "Group", "SolveState", "QueueState", "PreemptionState"},
}
"""Modules with state classes: their fields are assigned there, but for those of `FIELD_OWNERS`."""

FIELD_OWNERS = {
    "facts": "cache/cache.py",
    "constraints": "cache/cache.py",
    "group": "cache/cache.py",
    "gangs": "cache/cache.py",
    "not_ready": "cache/cache.py",
    "not_ready_wait": "cache/cache.py",
    "seat": "gang/members.py",
    "nominated": "preemption/plan.py",
    "persist_id": "permits/permits.py",
    "edited": "reconcile.py",
}

TRANSITION_OWNERS = {
    "attempts": ("solve/",),
    "permit": ("permits/permits.py",),
    "bind": ("permits/binding.py",),
    "timing": ("reconcile.py", "permits/permits.py"),
    "run_time": ("backfill/",),
    "growth": ("elastic/",),
    "hold": ("hold/", "gang/members.py"),
    "eviction": ("preemption/", "gang/members.py"),
    "solve": ("solve/solve.py",),
    "queueing": ("queue/queue.py",),
    "preemption": ("preemption/", "backfill/reservation.py"),
}
"""Which modules may call the methods of a value, by the field of Gang or Group that holds it. `gang/gang.py` may, for
transitions that concern several values."""

MUTATING = {"add", "append", "clear", "difference_update", "discard", "extend", "insert", "intersection_update"} | {
    *("pop", "popitem", "remove", "setdefault", "subtract", "symmetric_difference_update", "update")
}


def class_fields(source: str) -> dict[str, set[str]]:
    """Annotated fields, and attributes that methods assign to `self`, by class."""
    fields: dict[str, set[str]] = {}
    for class_ in ast.parse(source).body:
        if isinstance(class_, ast.ClassDef):
            annotated = [each.target for each in class_.body if isinstance(each, ast.AnnAssign)]
            own = [each for node in ast.walk(class_) for each in written(node) if is_self(each.value)]
            fields[class_.name] = {each.id for each in annotated if isinstance(each, ast.Name)}
            fields[class_.name] |= {each.attr for each in own}
    return fields


def sources() -> dict[str, str]:
    return {str(path.relative_to(CORE)): path.read_text() for path in sorted(CORE.rglob("*.py"))}


def owners() -> dict[str, set[str]]:
    """The modules that may assign each field: several where classes have fields of the same name."""
    found: dict[str, set[str]] = {}
    for module, classes in STATE_MODULES.items():
        for name, fields in class_fields((CORE / module).read_text()).items():
            for field in fields if name in classes else ():
                found.setdefault(field, set()).add(FIELD_OWNERS.get(field, module))
    return found


def is_self(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Name) and expression.id == "self"


def written(statement: ast.AST) -> Iterator[ast.Attribute]:
    """Attributes that the statement assigns, deletes or mutates."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign | ast.Delete):
        targets = list(statement.targets)
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign):
        targets = [statement.target]
    elif isinstance(statement, ast.Call) and isinstance(statement.func, ast.Attribute):
        targets = [statement.func.value] if statement.func.attr in MUTATING else []
    while targets:
        target = targets.pop()
        if isinstance(target, ast.Tuple | ast.List):
            targets += target.elts
        elif isinstance(target, ast.Subscript | ast.Starred):
            targets.append(target.value)
        elif isinstance(target, ast.Attribute):
            yield target


OWNERS = owners()


def foreign_writes(module: str, source: str) -> list[str]:
    """Writes of state fields in a module that does not own them."""
    own = set().union(*class_fields(source).values()) if module not in STATE_MODULES else set()
    found = []
    for node in ast.walk(ast.parse(source)):
        for target in written(node):
            called = isinstance(node, ast.Call) and target.attr in TRANSITION_OWNERS  # a transition, checked as such
            allowed = OWNERS.get(target.attr, {module})
            if module not in allowed and target.attr not in own and not called:
                found.append(f"{module}:{target.lineno}: {ast.unparse(target)}")
    return found


def transition_calls(source: str) -> Iterator[tuple[str, int]]:
    """Calls of the form `<gang or group>.<value>.<method>(...)`, with the value and the line; also by a local alias."""
    tree = ast.parse(source)
    aliases = {
        target.id: each.value.attr
        for each in ast.walk(tree)
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Attribute) and not is_self(each.value.value)
        for target in each.targets
        if isinstance(target, ast.Name) and each.value.attr in TRANSITION_OWNERS
    }
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        value = call.func.value
        if isinstance(value, ast.Attribute) and value.attr in TRANSITION_OWNERS:
            yield value.attr, call.lineno
        elif isinstance(value, ast.Name) and value.id in aliases:
            yield aliases[value.id], call.lineno


def foreign_transitions(module: str, source: str) -> list[str]:
    if module == "gang/gang.py":
        return []
    calls = transition_calls(source)
    return [f"{module}:{line}: {value}" for value, line in calls if not module.startswith(TRANSITION_OWNERS[value])]


SOURCES = sources()


@pytest.mark.parametrize("module", SOURCES)
def test_state_is_assigned_by_its_owner_only(module: str) -> None:
    assert foreign_writes(module, SOURCES[module]) == []


@pytest.mark.parametrize("module", SOURCES)
def test_transitions_are_called_by_the_owner_only(module: str) -> None:
    assert foreign_transitions(module, SOURCES[module]) == []


@pytest.mark.parametrize(
    "source",
    [
        "gang.permit.granted = True",
        "gang.attempts.in_term += 1",
        "held.state, other = 1, 2",
        "gang.seats[uid] = seat",
        "del gang.pending[uid]",
        "gang.lost.clear()",
        "gang.hold.marking |= uids",
        "story.gang('a').bind.avoided_nodes.add(node)",
        "group.queueing.equivalence_key = None",
        "group.not_ready = why",
    ],
)
def test_a_planted_write_is_found(source: str) -> None:
    assert foreign_writes("planted.py", source) != []
    assert foreign_transitions("planted.py", source) == []


@pytest.mark.parametrize(
    "source",
    [
        "gang.permit.grant()",
        "self._cache.gangs[id_].attempts.begin(uids)",
        "hold = gang.hold\nhold.begin(1.0, 2)",
        "group.solve.end()",
    ],
)
def test_a_planted_transition_is_found(source: str) -> None:
    assert foreign_transitions("planted.py", source) != []


@pytest.mark.parametrize(
    "source", ["class A:\n    def f(self): self.record = None", "self._gangs.pop(gang)", "permit = gang.permit.granted"]
)
def test_attributes_of_other_classes_and_reads_are_not_found(source: str) -> None:
    assert foreign_writes("planted.py", source) == foreign_transitions("planted.py", source) == []


def test_every_state_class_and_owner_exists() -> None:
    for module, classes in STATE_MODULES.items():
        assert class_fields(SOURCES[module]).keys() >= classes
    assert FIELD_OWNERS.keys() <= OWNERS.keys()
    assert set(FIELD_OWNERS.values()) <= SOURCES.keys()
    assert OWNERS.keys() >= TRANSITION_OWNERS.keys()
