"""Tests of the Debian packages on booted Debian hosts; packaging/test-deb runs them."""
