"""The producer's engine: it batches records, sends them and reports their outcome.

Everything between `send` and a broker's response belongs here, including idempotence, partitioners
and interceptors. Transactions are in `plog.client.transactions`, and the classes that applications
use are in `plog.client.faces`. Start with core.py, then follow a record through accumulator.py,
sender.py and batch_completion.py.
"""
