"""`plog metadata-shell` compared with Kafka's own shell on the same KRaft metadata log."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.log.metadata_logs import RECORDS, write_metadata_log
from tests.helpers.programs.java_process import JavaProcess
from tests.helpers.programs.kafka_tools import KafkaTools

pytestmark = pytest.mark.long

_COMMANDS = """\
cat /image/provenance
pwd
ls
ls /
cd image
pwd
ls
ls cluster topics
ls -l
cat features/finalized_group.version features/nope
cat /image/topics
cat
cd topics/byName
ls orders
ls /image/topics/byName/o*
ls /nope
cd /nope
cd orders/name
cd a b
cd ..
pwd
find /image/topics/byName
find /nope
tree
tree /image/topics/byName/orders/name
cat /image/topics/byName/orders/{0,1}
ls /image/topics/by?ame
ls '/image/topics'
ls /image /nope
ls /image/provenance /local/version
man nope
man
help ls
history 2
exit now
tree /image/../image/configs
cd
tree image
"""


def test_both_shells_print_the_same(tmp_path: Path) -> None:
    path = write_metadata_log(tmp_path / "metadata")
    done = subprocess.run(
        [sys.executable, "-m", "plog.cli", "metadata-shell", "--snapshot", path],
        input=_COMMANDS,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    theirs = KafkaTools.installed().start(
        "org.apache.kafka.shell.MetadataShell", "--snapshot", path
    )
    with theirs:
        start = _wait_until_replayed(theirs)
        for line in _COMMANDS.splitlines():
            theirs.tell(line)
        theirs.end()
        lines = theirs.lines[start:]
    assert _comparable(done.stdout.splitlines()) == _comparable(lines)


def _wait_until_replayed(shell: JavaProcess) -> int:
    """Wait until the shell has replayed the last record; return its number of lines so far.

    The shell accepts commands earlier.
    """
    shell.wait_for("Kafka Metadata Shell")
    last = f"offset {len(RECORDS) - 1},"
    while True:
        start = len(shell.lines)
        shell.tell("cat /image/provenance")
        if shell.wait_for(r"offset -?\d+,", start)[0] == last:
            return len(shell.lines)


def _comparable(lines: list[str]) -> list[str]:
    """Remove intended differences from `lines`."""
    text = "".join(re.sub(r"^(>> )+", "", line) + "\n" for line in lines)
    for pattern, by in (
        (r"(?m)^>> $", ""),
        (r"Optional\[4\.3-IV0\]", "4.3-IV0"),
        (r"(salt|storedKey|serverKey)=[0-9a-f]+", r"\1=[redacted]"),
        # Numbers in the history: Kafka's shell also counts the commands of earlier sessions.
        (r"(?m)^ +\d+  ", ""),
    ):
        text = re.sub(pattern, by, text)
    return [line for line in text.splitlines() if line.strip() not in (">>", "")]
