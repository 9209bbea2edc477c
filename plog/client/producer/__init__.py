"""The producer's engine: it batches records, sends them and reports their outcomes.

This package contains all steps from `send` to a broker's response, including idempotence,
partitioners and interceptors. Transactions are in `plog.client.transactions`, and
`plog.client.faces` contains the classes that applications use. Start with core.py, then follow a
record through accumulator.py, sender.py and batch_completion.py.
"""
