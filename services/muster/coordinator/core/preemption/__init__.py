"""Evicting or displacing lower-priority gangs for a pending gang."""
