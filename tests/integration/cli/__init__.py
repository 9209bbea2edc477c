"""The `plog` command with a real broker, and with Kafka's own tools for comparison."""
