"""Loads the fixtures of plogd.testing from this tree, also where plog is not installed."""

pytest_plugins = ["plogd.testing.plugin", "pytester"]
