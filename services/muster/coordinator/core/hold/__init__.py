"""Gangs that hold reservations while they wait for the rest (NonStrict)."""
