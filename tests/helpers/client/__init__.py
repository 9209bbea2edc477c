"""Clients of plog under test, and the clusters that they use.

Programs and faces of the client library and scripted clusters belong here; other clients do not:
see `tests.helpers.programs`. Start with client_under_test.py.
"""
