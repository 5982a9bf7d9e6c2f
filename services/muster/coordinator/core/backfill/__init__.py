"""Reserving capacity that is expected to become free for a starving gang."""
