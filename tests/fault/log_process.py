"""A process that truncates or prints a log on a real file system, without a broker.

Only followers truncate logs, so clients of a single broker cannot cause it. A process of its own
has no open files left when the file system must be unmounted.

    python -m tests.fault.log_process truncate DIRECTORY JOBS
    python -m tests.fault.log_process print DIRECTORY
"""

from __future__ import annotations

import json
import sys
from typing import cast

from plogd.log.disk.checkpoint_files import read_topic_id
from plogd.os_files import OsFiles
from tests.helpers.log.log_site import CONFIG, LogSite, partition_of, values
from tests.helpers.sim.sim_files import SimFiles

RECORDS = 17
END_OFFSET = 8
NEW_RECORDS = 3


def _site(directory: str) -> LogSite:
    return LogSite((directory,), files=cast(SimFiles, OsFiles()))


def _value(kind: str, offset: int) -> bytes:
    return f"{kind} {offset} ".encode().ljust(100, b".")


def truncate(directory: str, jobs: int) -> None:
    """Truncate a durable log and append to it, but stop after so many jobs.

    Prints whether that was enough, and waits for the end.
    """
    site = _site(directory).start()
    log = site.create("t-0")
    for offset in range(RECORDS):
        sequence = {"producer_id": 7, "producer_epoch": 0, "base_sequence": offset}
        site.append(log, value=_value("old", offset), **sequence)
    site.settle()
    site.write_checkpoints()
    later = log.truncate_to(END_OFFSET)
    is_appended = False
    for _ in range(jobs):
        site.ports.timers.run_due()
        if later.done and not is_appended:
            is_appended = True
            site.epoch = 1
            for offset in range(END_OFFSET, END_OFFSET + NEW_RECORDS):
                site.append(log, value=_value("new", offset))
        elif site.ports.jobs.waiting:
            site.ports.jobs.run_one()
    is_durable = is_appended and log.durable_end_offset == END_OFFSET + NEW_RECORDS
    print("whole" if is_durable else "part", flush=True)
    sys.stdin.read()


def show(directory: str) -> None:
    """Recover the log, and print its values, its epochs and what was reported."""
    site = _site(directory)
    topic_id = read_topic_id(OsFiles(), f"{directory}/t-0")
    assert topic_id is not None
    site.topics[partition_of("t-0")] = (topic_id, CONFIG)
    log = site.start().log()
    log.high_watermark = log.log_end_offset
    found = {offset: (value or b"").decode() for offset, value in values(log).items()}
    epochs = [log.leader_epochs.epoch_for_offset(offset) for offset in found]
    print(json.dumps({"values": list(found.items()), "epochs": epochs, "reports": site.reports}))


if __name__ == "__main__":
    if sys.argv[1] == "truncate":
        truncate(sys.argv[2], int(sys.argv[3]))
    else:
        show(sys.argv[2])
