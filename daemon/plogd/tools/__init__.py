"""Programs around the broker that are no part of it: each is a module with a ``main``."""
