"""A broker's replicas in a cluster: their roles, as the controller requests them."""
