"""Fetch requests of consumers and followers: sessions, reads, and waits for records."""
