"""Access control: authentication by tokens, authorization by RBAC, and an audit of requests."""
