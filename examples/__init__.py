"""Examples that use several parts of plog together."""
