"""`ReadingOptions`: what the driver sends to the workers of a query. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plog.spark.options.source_options import SourceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """The options that the workers of a query need."""

    client: Mapping[str, str]
    include_headers: bool = False
    fail_on_data_loss: bool = True

    @classmethod
    def of(cls, options: SourceOptions) -> ReadingOptions:
        """Return the part of a query's options that its workers need."""
        return cls(
            client=options.client,
            include_headers=options.include_headers,
            fail_on_data_loss=options.fail_on_data_loss,
        )
