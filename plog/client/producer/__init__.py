"""The producer's engine: it batches records, sends them and reports their fate.

Everything between `send` and a broker's answer belongs here, including idempotence, partitioners
and interceptors. Transactions are in `plog.client.transactions`, and what applications call is in
`plog.client.faces`. Start with core.py, then follow a record through accumulator.py, sender.py and
batch_completion.py.
"""
