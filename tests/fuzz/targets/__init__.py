"""The targets by name."""

from __future__ import annotations

from tests.fuzz.target import Target
from tests.fuzz.targets import (
    batches,
    checkpoints,
    codec_forms,
    compression,
    dispatch,
    frames,
    group_records,
    hostile_counts,
    legacy,
    metadata_records,
    properties,
    records,
    requests,
    short_paths,
    single_fetch,
    single_produce,
    subscriptions,
    tls_files,
)

TARGETS: dict[str, Target] = {
    module.TARGET.name: module.TARGET
    for module in (
        frames,
        requests,
        single_fetch,
        single_produce,
        short_paths,
        dispatch,
        hostile_counts,
        batches,
        records,
        codec_forms,
        compression,
        legacy,
        subscriptions,
        group_records,
        metadata_records,
        checkpoints,
        properties,
        tls_files,
    )
}
