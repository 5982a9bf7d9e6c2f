"""Functions of CEL and of Kubernetes' libraries, by subject; `muster.cel.functions.table` has all."""
