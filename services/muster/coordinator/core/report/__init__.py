"""Reasons, conditions, events and progress shown to users."""
