"""Kafka's Java clients and tools, librdkafka, and the clients of Python, Go and JavaScript."""
