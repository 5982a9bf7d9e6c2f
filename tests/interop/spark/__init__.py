"""Stand-ins for a Spark distribution, which the Spark operator calls and which creates the pods."""
