"""Stand-ins for controllers of Kubernetes."""
