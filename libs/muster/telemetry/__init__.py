"""What operators see of a running service: logs and traces."""
