"""Who asks, and what they may do: authentication by tokens, authorization by RBAC, and a record of what was asked."""
