"""Log directories and the disks that hold them: group commit, checkpoints and slow disks.

Locking a directory, syncing many logs in one round and writing to a slow disk belong here. The
contents of a segment's files belong to `plogd.log.segment`. Start with log_dir.py, then
group_commit.py.
"""
