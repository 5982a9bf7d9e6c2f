"""How long to wait before the next try: exponential with full jitter, so that many clients do not come at once."""

import asyncio

from tenacity import AsyncRetrying, RetryCallState, wait_random_exponential


class Backoff:
    """Pauses that grow with every try in a row. The n-th is random in 0 to min(longest, first * 2**n) seconds."""

    def __init__(self, first_seconds: float = 0.1, longest_seconds: float = 2.0) -> None:
        self._wait = wait_random_exponential(multiplier=first_seconds, max=longest_seconds)
        self.reset()

    def reset(self) -> None:
        """It worked: the next pause is a short one again."""
        self._state = RetryCallState(AsyncRetrying(), None, (), {})

    def next_seconds(self) -> float:
        """How long to wait for the next try, which is one more in a row."""
        seconds = self._wait(self._state)
        self._state.attempt_number += 1
        return seconds

    async def pause(self) -> None:
        """Wait for the next try."""
        await asyncio.sleep(self.next_seconds())
