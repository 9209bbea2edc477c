"""Requests and their answers: one file a family, and the table of what is served."""
