"""Quota of namespaces kept for PodGroups: what is reserved, who may pass, and the words for both.

    webhook (HTTPS) -> admission -> books <- keeper (of the leader: reserves, returns, tells)
                                      |
                        census (what is seen) + ledger (what is agreed, a ConfigMap, by compare-and-swap)

`books` and what it is made of are pure. docs/quota.md is for users; docs/decisions tell why it is like this.
"""
