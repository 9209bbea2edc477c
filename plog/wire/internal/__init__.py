"""Records that Kafka keeps in logs of its own, by family."""
