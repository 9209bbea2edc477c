"""The `plog` command as a process: its imports, exit codes and completion."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plog.cli.commands import COMMANDS

PLOG = Path(sys.executable).with_name("plog")
ADMIN = [
    row.name for row in COMMANDS if row.target.startswith("plog.") and row.name != "completion"
]


def _plog(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PLOG, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("name", ADMIN)
def test_admin_tool_imports_no_reactor(name: str) -> None:
    program = (
        "import sys\nfrom plog.cli.main import main\n"
        f"try:\n    main([{name!r}, '--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({x.partition('.')[0] for x in sys.modules} & {'twisted', 'plogd', "
        "'asyncio', 'OpenSSL'}), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stderr == "[]\n"


def test_closed_output_pipe_exits_with_0() -> None:
    with subprocess.Popen(
        [PLOG, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_unreachable_broker_is_reported_immediately_and_at_the_timeout() -> None:
    result = _plog(
        "consumer-groups", "--list", "--bootstrap-server", "127.0.0.1:1", "--timeout", "500"
    )
    assert result.returncode == 1
    warning, error = result.stderr.splitlines()
    assert warning == "plog: cannot connect to 127.0.0.1:1: Connection refused; retrying"
    assert error.startswith("plog: cannot connect to 127.0.0.1:1: Connection refused")


def test_shell_receives_completions() -> None:
    pytest.importorskip("argcomplete", reason="argcomplete is not installed")
    line = "plog dump-log --print"
    result = subprocess.run(
        ["bash", "-c", f"exec 8>&1 9>/dev/null; {PLOG} dump-log"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={
            **os.environ,
            "_ARGCOMPLETE": "1",
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
            "_ARGCOMPLETE_IFS": "\n",
        },
    )
    assert result.stdout.strip() == "--print-data-log"
