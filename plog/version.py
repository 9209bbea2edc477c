"""The version number of plog; setup.cfg reads it from this module."""

VERSION = "0.1.0"
