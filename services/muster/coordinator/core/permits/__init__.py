"""From a validated placement to bound pods: permits, binding, recovery."""
