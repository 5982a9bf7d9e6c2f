"""How much may be done in a second, with what was not used up to now: a token bucket, on the caller's clock."""


class Budget:
    """What is spent may be more than there is; then there is nothing for the time that it takes to make up for it."""

    def __init__(self, per_second: float, most_saved: float) -> None:
        self._per_second = per_second
        self._saving_seconds = most_saved / per_second
        self._empty_at = -self._saving_seconds

    @property
    def ready_at(self) -> float:
        """When something may be spent, or could be."""
        return self._empty_at

    def spend(self, amount: float, now: float) -> None:
        """Something was done."""
        self._save_up_to(now)
        self._empty_at += amount / self._per_second

    def use_up(self, amount: float, now: float) -> None:
        """Something was done that had to be: it takes what there is, and owes nothing."""
        self._save_up_to(now)
        self._empty_at = max(self._empty_at, min(now, self._empty_at + amount / self._per_second))

    def _save_up_to(self, now: float) -> None:
        self._empty_at = max(self._empty_at, now - self._saving_seconds)
