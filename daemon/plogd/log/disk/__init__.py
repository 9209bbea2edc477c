"""Log directories and the disks that hold them: group commit, checkpoints and slow disks.

This package locks log directories, syncs many logs in one round, writes checkpoints, and writes to
slow disks in jobs. The contents of a segment's files belong to `plogd.log.segment`. Start with
log_dir.py, then read group_commit.py.
"""
