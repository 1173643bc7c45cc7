"""Standby processes of a worker, which have imported its framework beforehand."""
