"""The targets by name."""

from __future__ import annotations

from tests.fuzz.target import Target
from tests.fuzz.targets import (
    batches,
    compression,
    dispatch,
    frames,
    group_records,
    legacy,
    metadata_records,
    properties,
    records,
    requests,
    single_produce,
    subscriptions,
)

TARGETS: dict[str, Target] = {
    module.TARGET.name: module.TARGET
    for module in (
        frames,
        requests,
        single_produce,
        dispatch,
        batches,
        records,
        compression,
        legacy,
        subscriptions,
        group_records,
        metadata_records,
        properties,
    )
}
