"""What a fuzz target is: a function of bytes with its invariant, seeds, and a bound on memory.

Two drivers use the same targets: hypothesis in ./test (test_targets.py) and atheris, which looks
for inputs that reach new lines (__main__.py). What once broke a target lies in corpus/<target>/.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`fuzz` raises, or fails an assertion, for a bug and for nothing else.

    Args:
        memory: The most that may be allocated at a time: so many bytes for each byte of the input,
            and so many in any case. None where the target keeps a world of its own.
        examples: How many inputs hypothesis makes in ./test, the same ones each time, where each
            takes long. None for many, which differ from run to run.
    """

    name: str
    fuzz: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    memory: tuple[int, int] | None = None
    examples: int | None = None

    def kept(self) -> Sequence[Path]:
        """The files of the corpus: what broke it once, and what reaches far."""
        return sorted(path for path in (CORPUS / self.name).glob("*") if path.is_file())

    def check(self, data: bytes) -> None:
        """Run the input, and hold it to the bound on memory.

        A first run may compile decoders and fill caches, so it is the second that counts.
        """
        self.fuzz(data)
        if self.memory is None:
            return
        for_each, in_any_case = self.memory
        tracemalloc.start()
        try:
            self.fuzz(data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        allowed = for_each * len(data) + in_any_case
        assert peak <= allowed, f"{peak} bytes allocated for {len(data)} bytes; allowed: {allowed}"
