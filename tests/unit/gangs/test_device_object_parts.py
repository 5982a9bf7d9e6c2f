"""Device objects are cut into parts by their size."""

from muster.gangs.device_object_parts import cut_by_bytes
from muster.gangs.facts import DeviceObject, DeviceObjectKind


def objects(*sizes: int) -> list[DeviceObject]:
    return [DeviceObject(DeviceObjectKind.SLICE, f"s{at}", b"x" * size) for at, size in enumerate(sizes)]


def test_parts_have_at_most_so_many_bytes_or_one_object() -> None:
    parts = [[len(each.content) for each in part] for part in cut_by_bytes(objects(40, 60, 1, 300, 10, 0), 100)]
    assert parts == [[40, 60], [1], [300], [10, 0]]


def test_without_objects_there_are_no_parts() -> None:
    assert list(cut_by_bytes([], 100)) == []
