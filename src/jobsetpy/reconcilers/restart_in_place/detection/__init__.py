"""Early detection of failures, and of pods whose heartbeats are missing."""
