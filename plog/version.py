"""The version of plog, which setup.cfg reads."""

VERSION = "0.1.0"
