"""Gangs, gang groups and their members."""
