"""Reserves quota of namespaces for PodGroups, and admits only pods that leave the reservations intact.

    webhook (HTTPS) -> admission -> accounting <- reconciler (leader only: reserves, releases, reports conditions)
                                        |
                usage (observed pods and limits) + ledger (agreed reservations, a ConfigMap, by compare-and-swap)

`accounting`, `usage` and `ledger` are pure. docs/quota.md is for users; decision 0032 has the reasons.
"""
