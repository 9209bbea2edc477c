"""What brokers coordinate for clients. So far: producer ids."""
