"""A whole cluster on one machine, for trying Muster out and for tests. Production code never imports it."""
