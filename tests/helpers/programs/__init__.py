"""Third-party programs that the tests run: Apache Kafka, its tools, kcat and other clients.

Starting them and reading their output belongs here. Start with apache_kafka.py, which downloads
Kafka.
"""
