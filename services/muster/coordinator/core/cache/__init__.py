"""Everything known of the cluster: gangs, nodes, reservations and topology trees."""
