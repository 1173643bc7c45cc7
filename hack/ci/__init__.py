"""Commands that run tests: all in parallel, clients, releases of Kubernetes, the wheel."""
