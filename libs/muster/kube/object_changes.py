"""What an informer tells: objects that came, changed or went, in the order in which it happened."""

from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Removed(Struct, frozen=True):
    """The object is gone from the API. `revision` is 0 when that shows only in its absence from a list."""

    uid: str
    revision: int = 0


class ObjectChanges(Struct, Generic[T], frozen=True):
    """Changes of one kind, in order.

    `through`: every change of this kind up to this resourceVersion has been told; 0 in the middle of a list, when there
    is no such revision: a list is in no order.
    """

    kind: str
    items: list[T | Removed]
    through: int = 0
