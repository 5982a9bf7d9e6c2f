"""Real Kubernetes components as peers of Muster."""
