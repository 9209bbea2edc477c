"""Tests of the sources of the Debian packages and of the systemd units, without building them."""
