"""The folder of an index: `index.json`, which describes the index, and a file for each shard."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plog.error_base import reason_of
from plog.search.search_error import SearchError

_FORMAT: Final = "plog-search-index-1"
_NAME: Final = "index.json"
DEFAULT_SHARDS: Final = 4
MAX_SHARDS: Final = 256
TOKENIZERS: Final = {
    "words": "unicode61",
    "stems": "porter unicode61",
    "trigrams": "trigram",
}
"""The tokenizers of SQLite: whole words, English words without endings, parts of words."""
# FTS5 gives these names another meaning, and does not distinguish case.
_RESERVED: Final = ("rank", "rowid", "texts")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLayout:
    """What all shards of an index have in common; it never changes."""

    columns: tuple[str, ...]
    """The names of the texts of a record."""
    shards: int = DEFAULT_SHARDS
    tokenizer: str = "words"

    def __post_init__(self) -> None:
        if self.tokenizer not in TOKENIZERS:
            raise SearchError(
                f"cannot use the tokenizer {self.tokenizer}: use one of {', '.join(TOKENIZERS)}"
            )
        if not 1 <= self.shards <= MAX_SHARDS:
            raise SearchError(
                f"cannot divide the index into {self.shards} shards: use 1 to {MAX_SHARDS}"
            )
        # The names of SQLite's columns ignore the case.
        lower = [name.lower() for name in self.columns]
        if not lower or len(set(lower)) < len(lower):
            raise SearchError(
                f"cannot index the columns {', '.join(self.columns) or '(none)'}: choose at least"
                " one, and names that do not differ only in case"
            )


def column_name(field: str) -> str:
    """Return the name of a field in queries, where some names are reserved.

    >>> column_name("title"), column_name("Rank")
    ('title', 'value_Rank')
    """
    return f"value_{field}" if field.lower() in _RESERVED else field


def shard_of(topic: str, partition: int, offset: int, shards: int) -> int:
    """Return the number of the shard of a record; the job computes the same in Spark.

    >>> shard_of("clicks", 0, 7, 4)
    1
    """
    # Python's `hash` differs between processes, and Spark does not have it.
    return zlib.crc32(f"{topic}/{partition}/{offset}".encode()) % shards


def shard_path(folder: Path, number: int) -> Path:
    """Return the file of a shard."""
    return folder / f"shard-{number:03d}.sqlite"


def read_layout(folder: Path) -> IndexLayout:
    """Return the layout of an index. Raises SearchError if the folder is not an index."""
    try:
        found = json.loads((folder / _NAME).read_text("utf-8"))
        if found["format"] != _FORMAT:
            raise SearchError(
                f"cannot read {folder}: its format is {found['format']}, and this version of plog"
                f" reads {_FORMAT}; use the version that wrote the index"
            )
        return IndexLayout(
            columns=tuple(map(str, found["columns"])),
            shards=int(found["shards"]),
            tokenizer=str(found["tokenizer"]),
        )
    except NotADirectoryError:
        raise SearchError(f"cannot read {folder}: it is not a folder") from None
    except FileNotFoundError:
        reason = "it is not a search index" if folder.is_dir() else "there is no such folder"
        raise SearchError(
            f"cannot read {folder}: {reason}; create one with plog spark search-index"
        ) from None
    except OSError as error:
        raise SearchError(f"cannot read {folder / _NAME}: {reason_of(error)}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise SearchError(
            f"cannot read {folder / _NAME}: {error!r}; restore the folder from a backup, or create"
            " the index again"
        ) from None


def open_index(
    folder: Path, columns: Sequence[str], *, shards: int | None, tokenizer: str | None
) -> IndexLayout:
    """Return the layout of an index to write, and create the index if the folder is empty.

    Without `shards` or `tokenizer`, an existing index keeps its own. Raises SearchError if the
    folder contains something else, or an index with another layout, and OSError.
    """
    if not _is_new(folder):
        found = read_layout(folder)
        wanted = IndexLayout(
            columns=tuple(columns),
            shards=shards or found.shards,
            tokenizer=tokenizer or found.tokenizer,
        )
        _check_same(folder, found, wanted)
        return found
    made = IndexLayout(
        columns=tuple(columns), shards=shards or DEFAULT_SHARDS, tokenizer=tokenizer or "words"
    )
    folder.mkdir(parents=True, exist_ok=True)
    _write_layout(folder, made)
    return made


def _is_new(folder: Path) -> bool:
    """Return whether the folder does not exist, or contains only what a crash has left."""
    try:
        return set(os.listdir(folder)) <= {f".{_NAME}"}
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        return False


def _check_same(folder: Path, found: IndexLayout, wanted: IndexLayout) -> None:
    for name in ("columns", "shards", "tokenizer"):
        before, now = getattr(found, name), getattr(wanted, name)
        if before != now:
            raise SearchError(
                f"cannot change the {name} of the index in {folder} from {_text(before)} to"
                f" {_text(now)}: use another folder, and another checkpoint"
            )


def _text(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _write_layout(folder: Path, layout: IndexLayout) -> None:
    """Write the description atomically and durably."""
    text = {
        "format": _FORMAT,
        "columns": layout.columns,
        "shards": layout.shards,
        "tokenizer": layout.tokenizer,
    }
    # `_is_new` ignores a file with this name, so that an interrupted creation is repeated.
    partial = folder / f".{_NAME}"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(text, file)
        file.flush()
        # Without fsync, the description could be empty after a power failure.
        os.fsync(file.fileno())
    os.replace(partial, folder / _NAME)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # The rename changes the folder, which has to be synced separately.
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
