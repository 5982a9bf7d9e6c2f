"""Topology trees, topology constraints by level, and ranks of members. Pure, no I/O."""
