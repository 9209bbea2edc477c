"""A fuzz target: a function of bytes that checks an invariant, its seeds, and a memory bound.

Two drivers use the same targets: hypothesis in ./test (test_targets.py) and atheris, which searches
for inputs that reach new lines (__main__.py). Inputs that once broke a target are in
corpus/<target>/.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A fuzz target; `fuzz` raises an exception if and only if it finds a bug.

    Args:
        memory: The allowed peak of allocations: bytes per byte of the input, plus a constant. None
            if the target keeps state between inputs.
        examples: How many inputs hypothesis generates in ./test, the same in each run, if each
            takes long. None for many, which differ between runs.
    """

    name: str
    fuzz: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    memory: tuple[int, int] | None = None
    examples: int | None = None

    def corpus_files(self) -> Sequence[Path]:
        """Return the target's corpus: inputs that broke it once or that reach deep code."""
        return sorted(path for path in (CORPUS / self.name).glob("*") if path.is_file())

    def check(self, data: bytes) -> None:
        """Run the input and check the memory bound.

        The first run may compile decoders and fill caches, so the second is measured.
        """
        self.fuzz(data)
        if self.memory is None:
            return
        per_byte, constant = self.memory
        tracemalloc.start()
        try:
            self.fuzz(data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        allowed = per_byte * len(data) + constant
        assert peak <= allowed, (
            f"allocated {peak} bytes for {len(data)} bytes of input (allowed: {allowed})"
        )
