"""Conditions of CompositePodGroups."""
