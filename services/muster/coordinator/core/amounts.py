"""Amounts of resources in the words of users."""


def in_units(resource: str, amount: int) -> str:
    """Cores of cpu, MiB of memory and the like, all else as it is counted."""
    if resource == "cpu":
        return f"{amount / 1000:g}"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return f"{-(-amount // 2**20)} MiB"
    return str(amount)
