"""Changes that an informer delivers: added, changed and removed objects, in order."""

from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Removed(Struct, frozen=True):
    """The object was deleted. `revision` is 0 if that is known only from its absence in a list."""

    uid: str
    revision: int = 0


class ObjectChanges(Struct, Generic[T], frozen=True):
    """Changes of one kind, in order.

    `through`: every change of this kind up to this resourceVersion has been delivered; 0 within a list, which is not
    ordered by revision.
    """

    kind: str
    items: list[T | Removed]
    through: int = 0
