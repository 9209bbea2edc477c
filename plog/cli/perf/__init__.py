"""The performance tools: consumer-perf-test, producer-perf-test and e2e-latency.

The tools and the statistics they print in Kafka's format belong here. Comparisons of plog with
other brokers are in tests/bench. Start with producer_perf_test.py and statistics.py.
"""
