"""Gangs: what is known of pods, nodes and gangs, as plain values, and what follows from it. No I/O."""
