"""JobSets on a control plane, feature by feature."""
