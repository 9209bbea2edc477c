"""The job ``recommend``: items that users see together, and the most similar ones of each item.

A basket is the set of items that a user has seen in a window of time. Start with job.py.
item_counts.py counts the baskets with each item and each pair of items, similar_items.py computes
scores, and counts_folder.py keeps the counts and publishes the result.

Invariant: each basket is in the counts once, even if its batch is repeated.
"""
