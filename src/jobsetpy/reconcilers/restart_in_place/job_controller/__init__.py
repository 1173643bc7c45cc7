"""Rules of the Job controller that restarts in place depend on."""
