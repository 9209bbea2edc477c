"""Load logs at startup: find them, check their tails and report damage.

Truncating a torn tail, restoring producer state and rejecting stray segments belong here. The
checkpoint files that determine where recovery begins are in `plogd.log.disk`, and rebuilding an
index while the broker runs is in segment/index_rebuild.py. Start with log_loader.py for all logs,
then log_recovery.py for one.
"""
