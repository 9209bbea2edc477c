"""Partitions as this broker hosts them: who may append, what may be read, who waits."""
