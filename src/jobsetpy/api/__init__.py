"""The Kubernetes and JobSet API as frozen Python values."""
