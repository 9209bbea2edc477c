"""Load logs at startup: find them, check the last segments, and report damage.

This package truncates torn tails, restores producer state and rejects stray segments. The
checkpoint files that determine where recovery begins are in `plogd.log.disk`;
segment/index_rebuild.py rebuilds indexes while the broker runs. Start with log_loader.py for all
logs, then read log_recovery.py for a single log.
"""
