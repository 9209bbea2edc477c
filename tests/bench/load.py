"""`Load`: a row of the bench, with its commands, its brokers and its targets."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.bench.rounds import Round, Target

if TYPE_CHECKING:
    from tests.bench.session import Session

ALL_THREE = ("kafka", "plog", "plog-default")


class StepFailed(Exception):
    """A command or another part of a load failed."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command; it runs on the brokers in `only`, or on all of the load's if that is empty."""

    name: str
    command: str
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A row of the table, or several rows that are measured together.

    `command` is for a load with one step. `prepare` fills the topic once for each broker before the
    first round; without it, each round has a new topic. `extra` has more options for some brokers.
    """

    name: str
    what: str
    section: str
    targets: tuple[Target, ...]
    command: str = ""
    steps: tuple[Step, ...] = ()
    prepare: str = ""
    peers: tuple[str, ...] = ALL_THREE
    extra: Mapping[str, str] = field(default_factory=dict)
    rounds: int = 5
    run: Callable[[Session], Generator[Round]] | None = None

    @property
    def judged(self) -> tuple[str, ...]:
        """The brokers whose runs must not be noisy: all but those that are only reported."""
        reported = {target.reported for target in self.targets}
        return tuple(name for name in self.peers if name not in reported)

    @property
    def is_of_requests(self) -> bool:
        """Whether a request is one message; CPU per request then says more than CPU per GB."""
        return "--batch 1 " in f"{self.command} "
