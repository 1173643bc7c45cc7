"""Rules about a JobSet's Jobs: their order, failures, success, restarts, time to live."""
