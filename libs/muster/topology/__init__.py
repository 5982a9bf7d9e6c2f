"""Which nodes are near which, and what gangs ask of that: trees, constraints per level, ranks. Pure, no I/O."""
