"""Attacks on a real broker with default settings, while a second client is being served.

`./test attack` prints for each attack the longest wait of the other client (the probe), the peak
RSS of the broker, and whether everything still works. Results and bounds are asserted; waits are
only reported, because they depend on the machine. Whether a turn of the reactor is bounded is
decided by counting, in tests/fuzz/targets/hostile_counts.py.
"""
