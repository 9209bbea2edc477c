"""Producer transactions (KIP-98, KIP-360, KIP-447, KIP-890).

This package contains the state of a transaction, the requests to its coordinator, and the methods
that applications call. To send batches, a transactional producer uses the accumulator and sender of
`plog.client.producer`. Start with transaction_state.py for the rules, then read
transaction_manager.py, which implements the calls.
"""
