"""Functions by name, with one implementation for each combination of argument types."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from muster.cel.budget import Budget
from muster.cel.errors import no_overload
from muster.cel.values import Domains, type_name

Implementation = Callable[..., Any]
"""Takes the budget and the arguments, the target first; charges work before it is done. Raises Fault, OverBudget."""
F = TypeVar("F", bound=Implementation)
ANY: Final = object
"""Stands for every type in a declaration."""


class Function:
    """A function, with the target as its first argument if it has one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._exact: dict[tuple[type, ...], Implementation] = {}
        self._general: list[tuple[tuple[type, ...], Implementation]] = []
        """Overloads with ANY."""

    def add(self, types: tuple[type, ...], implementation: Implementation) -> None:
        if ANY in types:
            self._general.append((types, implementation))
        else:
            self._exact[types] = implementation

    def extend(self, other: "Function") -> None:
        """Takes over the overloads of a function with the same name."""
        self._exact.update(other._exact)
        self._general.extend(other._general)

    def takes(self, count: int) -> bool:
        """Whether any overload has this number of arguments."""
        return any(len(types) == count for types in [*self._exact, *(types for types, _ in self._general)])

    def __call__(self, budget: Budget, *args: Any) -> Any:
        """The result. Raises Fault, OverBudget."""
        types = tuple(map(type, args))
        implementation = self._exact.get(types) or self._find(types)
        if implementation is None:
            raise no_overload(self.name, *map(type_name, args))
        return implementation(budget, *args)

    def _find(self, types: tuple[type, ...]) -> Implementation | None:
        if Domains in types:
            types = tuple(dict if each is Domains else each for each in types)
            if (exact := self._exact.get(types)) is not None:
                return exact
        for declared, implementation in self._general:
            if len(declared) == len(types) and all(d is ANY or d is t for d, t in zip(declared, types, strict=True)):
                return implementation
        return None


class Library:
    """Functions of one subject."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        """Called as name(args)."""
        self.methods: dict[str, Function] = {}
        """Called as target.name(args)."""

    def function(self, name: str, *types: type) -> Callable[[F], F]:
        """Declares an overload of a function; decorators may be stacked."""
        return lambda implementation: self._declare(self.functions, name, types, implementation)

    def method(self, name: str, *types: type) -> Callable[[F], F]:
        """Declares an overload of a method, with the type of the target first; decorators may be stacked."""
        return lambda implementation: self._declare(self.methods, name, types, implementation)

    @staticmethod
    def _declare(table: dict[str, Function], name: str, types: tuple[type, ...], implementation: F) -> F:
        table.setdefault(name, Function(name)).add(types, implementation)
        return implementation
