"""Performance tools: consumer-perf-test, producer-perf-test and e2e-latency.

This package contains the tools, and the statistics that they print in Kafka's format. Benchmarks
that compare plog with other brokers are in tests/bench. Start with producer_perf_test.py and
statistics.py.
"""
