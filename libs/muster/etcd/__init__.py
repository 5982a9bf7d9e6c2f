"""The edge to etcd: fenced transactions and the election of a leader."""
