"""Bugs on purpose, to see that the simulator finds them: ``--plant NAME``, and test_plants.py.

Each is a small change of one method of the broker, made only while `planted` is open.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from plogd.log.flush import SyncTicket
from plogd.log.log import Log
from plogd.log.producer_state import ProducerStateManager
from plogd.replica.delayed import PartitionAppend


def _ack_before_flush(stack: ExitStack) -> None:
    """Everything appended counts as durable at once."""
    end = property(lambda log: log.log_end_offset)
    stack.enter_context(patch.object(Log, "acknowledged_end_offset", end))


def _skip_dir_sync(stack: ExitStack) -> None:
    """A sync round leaves out the directory that holds a new segment's name."""
    begin_sync = Log.begin_sync

    def without_directory(log: Log) -> SyncTicket | None:
        ticket = begin_sync(log)
        return ticket and dataclasses.replace(ticket, directory=None)

    stack.enter_context(patch.object(Log, "begin_sync", without_directory))


def _ack_before_hw(stack: ExitStack) -> None:
    """A produce is answered as soon as it is appended."""
    stack.enter_context(patch.object(PartitionAppend, "is_waiting", lambda append, acks: False))


def _forget_producers(stack: ExitStack) -> None:
    """Sequence numbers are not looked at."""
    stack.enter_context(
        patch.object(ProducerStateManager, "check", lambda state, header, origin: None)
    )


PLANTS: dict[str, Callable[[ExitStack], None]] = {
    "ack-before-flush": _ack_before_flush,
    "skip-dir-sync": _skip_dir_sync,
    "ack-before-hw": _ack_before_hw,
    "forget-producers": _forget_producers,
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Run with the bug `name`; None is none."""
    with ExitStack() as stack:
        if name is not None:
            PLANTS[name](stack)
        yield
