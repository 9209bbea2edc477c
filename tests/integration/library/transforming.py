"""Read numbers from a topic and write their doubles to another in transactions, until killed.

    python -m tests.integration.library.transforming SERVERS SOURCE TARGET NUMBER

Exactly once: each transaction contains the doubles and the offsets after their sources. Any number
of processes share the work, each with its own NUMBER.
"""

from __future__ import annotations

import sys
import threading

import plog


def main(servers: str, source: str, target: str, number: str) -> None:
    """Run forever; retry after an error that aborts the transaction, exit with any other."""
    consumer = plog.Consumer(
        source,
        bootstrap_servers=servers,
        group_id=f"doubling-{source}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=1500,
        heartbeat_interval_ms=300,
    )
    producer = plog.Producer(
        bootstrap_servers=servers, transactional_id=f"doubler-{source}-{number}", linger_ms=0
    )
    producer.init_transactions()
    print("ready", flush=True)
    while True:
        records = consumer.consume(10, timeout_s=1)
        if not records:
            continue
        try:
            with producer.transaction():
                for record in records:
                    producer.send(target, b"%d" % (2 * int(record.value)), partition=0)
                producer.flush()
                print("in a transaction", flush=True)
                threading.Event().wait(0.01)  # Leave time for a kill within the transaction.
                producer.send_offsets_to_transaction(
                    {
                        plog.TopicPartition(source, record.partition): record.offset + 1
                        for record in records
                    },
                    consumer.group_metadata(),
                )
        except plog.TransactionAbortable as error:
            print(f"again: {error}", flush=True)
            consumer.seek_to_committed()


if __name__ == "__main__":
    main(*sys.argv[1:])
