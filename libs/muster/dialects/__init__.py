"""Dialects: the ways in which users declare gangs, each read into the same facts. Pure: no I/O, no clock."""
