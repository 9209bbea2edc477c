"""plog/search/index_folder.py: an index is created once, and other folders are refused."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from plog.search.index_folder import IndexLayout, open_index, read_layout, shard_of
from plog.search.search_error import SearchError


def test_index_keeps_its_layout(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "index"
    made = open_index(folder, ["title", "body"], shards=3, tokenizer="stems")
    assert made == IndexLayout(columns=("title", "body"), shards=3, tokenizer="stems")
    assert read_layout(folder) == made
    assert open_index(folder, ["title", "body"], shards=None, tokenizer=None) == made


@pytest.mark.parametrize(
    ("columns", "shards", "tokenizer", "message"),
    [
        (["body"], None, None, "cannot change the columns of the index .* from text to body"),
        (["text"], 5, None, "cannot change the shards of the index .* from 4 to 5"),
        (["text"], None, "trigrams", "the tokenizer of .* from words to trigrams"),
        (["text"], 300, None, "into 300 shards: use 1 to 256"),
        (["text", "Text"], None, None, "names that do not differ only in case"),
    ],
)
def test_another_layout_is_refused(
    tmp_path: Path, columns: list[str], shards: int | None, tokenizer: str | None, message: str
) -> None:
    open_index(tmp_path, ["text"], shards=None, tokenizer=None)
    with pytest.raises(SearchError, match=message):
        open_index(tmp_path, columns, shards=shards, tokenizer=tokenizer)


def test_creation_that_was_interrupted_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        folder = tmp_path / name
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(OSError, match="No space left"):
                open_index(folder, ["text"], shards=None, tokenizer=None)
        with pytest.raises(SearchError, match="it is not a search index"):
            read_layout(folder)
        assert open_index(folder, ["text"], shards=2, tokenizer=None).shards == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "index.json: JSONDecodeError"),
        ("[]", "index.json: TypeError"),
        ("{}", "index.json: KeyError"),
        ('{"format": "plog-search-index-9"}', "use the version that wrote the index"),
    ],
)
def test_damaged_description_is_reported(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(SearchError, match=message):
        read_layout(tmp_path)


def test_folder_of_another_kind_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, message in (
        (tmp_path, "it is not a search index; create one with plog spark search-index"),
        (tmp_path / "missing", "there is no such folder"),
        (tmp_path / "file", "it is not a folder"),
    ):
        with pytest.raises(SearchError, match=message):
            read_layout(path)
    with pytest.raises(SearchError, match="it is not a search index"):
        open_index(tmp_path, ["text"], shards=None, tokenizer=None)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_records_of_a_partition_are_divided_evenly() -> None:
    counts = Counter(shard_of("clicks", 0, offset, 4) for offset in range(4000))
    assert len(counts) == 4
    assert min(counts.values()) > 800
