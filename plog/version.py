"""The version of this software; setup.cfg reads it from here."""

VERSION = "0.1.0"
