"""``twistd plog``: the broker as a Twisted plugin. There is no __init__.py here, on purpose."""

from twisted.application.service import ServiceMaker

plog = ServiceMaker(
    "plog", "plogd.tap", "A publish-subscribe log that speaks the Kafka protocol", "plog"
)
