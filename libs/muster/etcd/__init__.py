"""etcd client: fenced transactions and leader election."""
