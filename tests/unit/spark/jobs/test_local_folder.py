"""plog/spark/jobs/local_folder.py: only folders of the local file system are accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.settings import ConfigError
from plog.spark.jobs.local_folder import local_folder


def test_path_becomes_absolute() -> None:
    assert local_folder("a/b", "--output") == Path.cwd() / "a/b"
    assert local_folder("file:/a%20b", "--output") == Path("/a b")


@pytest.mark.parametrize("text", ["s3a://bucket/t", "hdfs:/t", "file://host/t"])
def test_other_file_system_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot use {text} as --output: the job renames files"):
        local_folder(text, "--output")
