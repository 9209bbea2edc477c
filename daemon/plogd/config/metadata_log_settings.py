"""Settings of the embedded metadata store's log.

`BrokerConfig` (broker_config.py) inherits them. Names, types, bounds and defaults are Kafka's.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.settings import HOUR_MS, MIB, SettingType, setting


@dataclass(frozen=True, kw_only=True)
class MetadataLogSettings:
    """The part of `BrokerConfig` for the metadata log."""

    metadata_log_max_record_bytes_between_snapshots: int = setting(
        "metadata.log.max.record.bytes.between.snapshots",
        20 * MIB,
        "Size of the records in the metadata log after which the broker writes a snapshot, which"
        " replaces them. A lower value shortens startup; a higher value writes less.",
        type=SettingType.LONG,
        at_least=1,
        unit="bytes",
        importance="high",
        group="Metadata log",
    )
    metadata_log_max_snapshot_interval_ms: int = setting(
        "metadata.log.max.snapshot.interval.ms",
        HOUR_MS,
        "Time after which the broker writes a snapshot of the metadata, if the metadata has"
        " changed, even if there are few records. 0 disables such snapshots.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="high",
    )
