"""Which gang groups may be tried, in which order, and when again."""
