"""plog's own client library, in all its faces, with plog and with Apache Kafka."""
