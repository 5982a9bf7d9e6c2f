"""Solve requests to placement and the validation of its answers."""
