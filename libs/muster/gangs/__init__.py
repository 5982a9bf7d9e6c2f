"""Pods, nodes and gangs as plain values, and pure functions on them. No I/O."""
