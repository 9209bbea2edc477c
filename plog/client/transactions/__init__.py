"""Transactions of a producer (KIP-98, KIP-360, KIP-447, KIP-890).

The state of a transaction, the requests to its coordinator and the methods that applications call
belong here. Sending batches does not: a transactional producer uses the accumulator and sender of
`plog.client.producer`. Start with transaction_state.py for the rules, then transaction_manager.py,
which carries them out.
"""
