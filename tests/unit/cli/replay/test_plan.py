"""plog/cli/replay/plan.py: the range of a replay and its state file."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.cli.options import UsageError
from plog.cli.parser import tool_parser
from plog.cli.replay.command import check, configure
from plog.cli.replay.plan import PartitionRange, State

RANGES = [PartitionRange(0, 3, 10), PartitionRange(7, 5, 5)]


def test_saved_state_is_loaded(tmp_path: Path) -> None:
    state = State(tmp_path / "state", "a@1", "b@1")
    assert state.load() is None
    state.save(RANGES)
    assert State(tmp_path / "state", "a@1", "b@1").load() == RANGES
    assert [x.remaining for x in RANGES] == [7, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_state_of_another_replay_is_an_error(tmp_path: Path) -> None:
    State(tmp_path / "state", "a@1", "b@1").save(RANGES)
    with pytest.raises(UsageError, match="belongs to a replay from a@1 to b@1"):
        State(tmp_path / "state", "a@1", "b@2").load()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"source": 1}', "\u00e4"])
def test_file_that_is_not_a_state_is_an_error_and_stays_unchanged(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "state"
    path.write_text(text)
    with pytest.raises(UsageError, match="not contain the state of a replay"):
        State(path, "a@1", "b@1").load()
    assert path.read_text() == text


@pytest.mark.parametrize("bounds", [("offset", "5", "5"), ("time", "2026-03-02", "2026-03-01")])
def test_range_that_ends_before_it_starts_is_an_error(bounds: tuple[str, str, str]) -> None:
    kind, first, until = bounds
    words = ["--bootstrap-server", "a:1", "--topic", "t", "--to-topic", "u"]
    words += [f"--from-{kind}", first, f"--until-{kind}", until]
    with pytest.raises(UsageError, match=f"--until-{kind} must be later"):
        check(tool_parser("replay", configure).parse_args(words))
