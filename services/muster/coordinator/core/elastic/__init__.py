"""Growth of gangs that have their minimum."""
