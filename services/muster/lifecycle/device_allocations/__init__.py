"""Arbitrates allocations of devices by a validating webhook for the status of ResourceClaims, and a ledger that all
replicas share, so that no device is in two allocated claims, whichever schedulers write them (decision 0068).

`ledger` is the domain, without I/O; `cache` observes claims and slices; `admission` decides; `webhook` and `controller`
are the service.
"""
