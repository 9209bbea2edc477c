"""Reads numbers of a topic, and writes their doubles to another in transactions, until it dies.

    python -m tests.integration.transforming SERVERS SOURCE TARGET NUMBER

Exactly once: each transaction has the doubles, and the offsets behind what they were made of. Any
number of processes share the work, each with its NUMBER.
"""

from __future__ import annotations

import sys
import threading

import plog


def main(servers: str, source: str, target: str, number: str) -> None:
    """Go on for ever; errors that abort a transaction are no reason to end, others are."""
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
                threading.Event().wait(0.01)  # The best moment to be killed.
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
