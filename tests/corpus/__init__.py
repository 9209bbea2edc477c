"""Bytes that other programs wrote, kept as they were; each folder's README says by whom and how."""
