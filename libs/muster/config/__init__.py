"""What a service is told at its start, from its environment and flags."""
