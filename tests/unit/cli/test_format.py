"""Formats of amounts."""

from muster.cli.format import amount


def test_amounts_have_kubernetes_units() -> None:
    written = [amount("cpu", 1500), amount("cpu", 96_000), amount("cpu", 15_000_000_000)]
    assert written == ["1.5", "96", "15000000"]
    gibi = 1 << 30
    assert [amount("memory", 64 * gibi), amount("memory", 3 * gibi // 2), amount("memory", 12)] == [
        "64Gi",
        "1.5Gi",
        "12",
    ]
    assert amount("hugepages-2Mi", gibi) == "1Gi"
    assert amount("nvidia.com/gpu", 8) == "8"
