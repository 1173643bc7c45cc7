"""Progress of the worker: the file that it writes, hangs, steps."""
