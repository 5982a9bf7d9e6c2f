"""Settings of the services."""
