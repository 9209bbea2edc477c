"""What the control records of a KRaft metadata log say: leaders, voters, ends of snapshots.

One broker by itself has no Raft and writes none of them; logs and snapshots of Kafka's controllers
hold them. Each begins with its version, which is a field of it as well.
Source: Kafka 4.3 clients/src/main/resources/common/message, ControlRecordUtils.

  LeaderChangeMessage   1 directory ids of the voters (KIP-853)
"""

from __future__ import annotations

from typing import Final

from plog.wire.primitives import Buffer, WireError
from plog.wire.schema import Message, Struct, field, int16, int32, int64, uint16, uuid

_VERSION_BYTES = 2


class LeaderChangeVoter(Struct):
    """A node that may vote, or did."""

    voter_id: int32 = field()
    voter_directory_id: uuid = field("1+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """Who leads from here on, and by whose votes."""

    version: int16 = field()
    leader_id: int32 = field()
    voters: list[LeaderChangeVoter] = field()
    granting_voters: list[LeaderChangeVoter] = field()


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """The beginning of a snapshot; the time of the last record it stands for, in ms."""

    version: int16 = field()
    last_contained_log_timestamp: int64 = field()


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """The end of a snapshot."""

    version: int16 = field()


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The version of KRaft that is spoken from here on."""

    version: int16 = field()
    k_raft_version: int16 = field()


class VoterEndpoint(Struct):
    """Where a voter is reached."""

    name: str = field()
    host: str = field()
    port: uint16 = field()


class KRaftVersionFeature(Struct):
    """The versions of KRaft a voter speaks."""

    min_supported_version: int16 = field()
    max_supported_version: int16 = field()


class Voter(Struct):
    """A node that may vote."""

    voter_id: int32 = field()
    voter_directory_id: uuid = field()
    endpoints: list[VoterEndpoint] = field()
    k_raft_version_feature: KRaftVersionFeature = field()


class VotersRecord(Message, versions="0", flexible="0+"):
    """The nodes that may vote."""

    version: int16 = field()
    voters: list[Voter] = field()


RAFT_RECORDS: Final[dict[int, type[Message]]] = {
    2: LeaderChangeMessage,
    3: SnapshotHeaderRecord,
    4: SnapshotFooterRecord,
    5: KRaftVersionRecord,
    6: VotersRecord,
}
"""By the kind in the control record's key: `plog.records.control.ControlType`."""


def decode_raft_record(kind: int, value: Buffer | None) -> tuple[Message, int]:
    """What the value of a control record of this kind says, and its version. Raises WireError."""
    record = RAFT_RECORDS[kind]
    data = value or b""
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or not record.min_version <= version <= record.max_version:
        raise WireError(f"no {record.__name__} has version {version} in {len(data)} bytes")
    return record.decode(data, version), version
