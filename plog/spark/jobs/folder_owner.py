"""The query that owns the output folder of a job: other queries must not write there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from plog.settings import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The id survives restarts of a job, so it identifies the owner of a folder.
_QUERY_ID: Final = "sql.streaming.queryId"
"""Spark sets this property in the thread that runs a query; the id is that of the checkpoint."""


def query_of(batch: DataFrame) -> str:
    """Return the id of the query that has passed a batch to a job."""
    query = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    assert query is not None
    return str(query)


def check_owner(root: Path, owner: str, query: str) -> None:
    """Check that a query owns a folder. Raises ConfigError."""
    if owner != query:
        raise ConfigError(
            [
                f"cannot write to {root}: the query {owner} has written it, and this is the"
                f" query {query}; use the checkpoint of that query, or another folder"
            ]
        )


def check_checkpoint(root: Path, batch_id: int, *, oldest: int, newest: int) -> None:
    """Check that the batch is not older than `oldest`. Raises ConfigError.

    `newest` is the newest batch that the folder contains.
    """
    # With an older checkpoint, the job would write records a second time.
    if batch_id < oldest:
        raise ConfigError(
            [
                f"cannot write batch {batch_id} to {root}: it contains batch {newest}, so the"
                " checkpoint is older than the table; restore the checkpoint and the table from"
                " the same backup, or write to another folder"
            ]
        )
