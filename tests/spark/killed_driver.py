"""The driver of a stream that test_kills.py kills: it deduplicates, and reads and writes plog.

python -m tests.spark.killed_driver '{"stream": …, "folder": …, "ends": false}'
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.spark.faulty_stream import Stream


def main(wanted: dict[str, Any]) -> None:
    """Run the stream until it is killed, or until it has read everything."""
    from tests.spark.spark_session import spark_session

    stream = Stream(**wanted["stream"])
    # Two executors, each in a JVM of its own below that of the driver.
    more = {"spark.executor.memory": "512m"}
    with spark_session(Path(wanted["folder"]), "local-cluster[2,1,512]", more) as spark:
        reader = spark.readStream.format("plog").options(
            subscribe=stream.source, startingOffsets="earliest", maxOffsetsPerTrigger="150"
        )
        rows = reader.option("kafka.bootstrap.servers", stream.bootstrap_servers).load()
        writer = rows.selectExpr("value").writeStream.format("plog")
        writer = writer.option("kafka.bootstrap.servers", stream.bootstrap_servers)
        writer = writer.options(
            topic=stream.target, deduplicate="killed", checkpointLocation=stream.checkpoint
        )
        trigger = {"availableNow": True} if wanted["ends"] else {"processingTime": "0 seconds"}
        writer.trigger(**trigger).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
