"""Commands of the test runs: all side by side, clients, releases of Kubernetes, the wheel."""
