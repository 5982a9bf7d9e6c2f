"""Queues that namespaces share."""
