"""Control records of a KRaft metadata log: leaders, voters, snapshot headers and footers.

Logs and snapshots of Kafka's controllers contain these records. A plog broker does not use Raft,
and writes only the headers and footers of snapshots. A record starts with its version, which is
also one of its fields.
Source: Kafka 4.3 clients/src/main/resources/common/message, ControlRecordUtils.

  LeaderChangeMessage   1 directory ids of the voters (KIP-853)
"""

from __future__ import annotations

from typing import Final

from plog.wire.primitives import Buffer, WireError
from plog.wire.schema import Message, Struct, field, int16, int32, int64, uint16, uuid

_VERSION_BYTES = 2


class LeaderChangeVoter(Struct):
    """A node that can vote, or has voted."""

    voter_id: int32 = field()
    voter_directory_id: uuid = field("1+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """The new leader, the voters, and the voters that elected the leader."""

    version: int16 = field()
    leader_id: int32 = field()
    voters: list[LeaderChangeVoter] = field()
    granting_voters: list[LeaderChangeVoter] = field()


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """The header of a snapshot, with the timestamp of its last record in ms."""

    version: int16 = field()
    last_contained_log_timestamp: int64 = field()


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """The footer of a snapshot."""

    version: int16 = field()


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The KRaft version of the records that follow."""

    version: int16 = field()
    k_raft_version: int16 = field()


class VoterEndpoint(Struct):
    """An address of a voter."""

    name: str = field()
    host: str = field()
    port: uint16 = field()


class KRaftVersionFeature(Struct):
    """The KRaft versions that a voter supports."""

    min_supported_version: int16 = field()
    max_supported_version: int16 = field()


class Voter(Struct):
    """A node that can vote, and its addresses."""

    voter_id: int32 = field()
    voter_directory_id: uuid = field()
    endpoints: list[VoterEndpoint] = field()
    k_raft_version_feature: KRaftVersionFeature = field()


class VotersRecord(Message, versions="0", flexible="0+"):
    """The set of voters."""

    version: int16 = field()
    voters: list[Voter] = field()


RAFT_RECORDS: Final[dict[int, type[Message]]] = {
    # Types 0 and 1 are the abort and commit markers of transactions (KIP-98).
    2: LeaderChangeMessage,
    3: SnapshotHeaderRecord,
    4: SnapshotFooterRecord,
    5: KRaftVersionRecord,
    6: VotersRecord,
}
"""Record classes by `plog.records.control.ControlType`, the type in the key."""


def decode_raft_record(kind: int, value: Buffer | None) -> tuple[Message, int]:
    """Decode the value of a control record; return the record and its version. Raises WireError."""
    record = RAFT_RECORDS[kind]
    data = value or b""
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or not record.min_version <= version <= record.max_version:
        raise WireError(f"a {record.__name__} of {len(data)} bytes has invalid version {version}")
    # Decoding starts at the first byte, because the version is also the record's first field.
    return record.decode(data, version), version
