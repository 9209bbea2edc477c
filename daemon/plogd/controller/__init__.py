"""What decides about the cluster: which topics there are, and where their partitions lie."""
