"""A broker on virtual time and simulated files, for tests in one process.

Ports, files, disks and the broker on them belong here; the simulator of faults, which uses them, is
`tests.sim`. Start with sim_broker.py.
"""
