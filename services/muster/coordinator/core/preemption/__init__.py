"""Evicts pods of gangs of lower priority, and releases reservations, for a pending gang."""
