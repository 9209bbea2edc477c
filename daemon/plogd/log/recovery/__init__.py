"""Loading logs at start: finding them, checking their tails and reporting damage.

Truncating a torn tail, restoring producer state and rejecting stray segments belong here. The
checkpoint files that say where to begin are in `plogd.log.disk`, and rebuilding an index while the
broker runs is in segment/index_rebuild.py. Start with log_loader.py for all logs, then
log_recovery.py for one.
"""
