"""Cuts device objects into parts by the size of their content: a ResourceSlice may have 128 devices."""

from collections.abc import Iterable, Iterator

from muster.gangs.facts import DeviceObject

_MOST_OBJECTS = 1000


def cut_by_bytes(objects: Iterable[DeviceObject], most_bytes: int) -> Iterator[tuple[DeviceObject, ...]]:
    """Parts of at most so many bytes, or of one object that is larger."""
    part: list[DeviceObject] = []
    size = 0
    for each in objects:
        if part and (size + len(each.content) > most_bytes or len(part) == _MOST_OBJECTS):
            yield tuple(part)
            part, size = [], 0
        part.append(each)
        size += len(each.content)
    if part:
        yield tuple(part)
