"""Commands of the test runs: groups, outcomes, releases of Kubernetes."""
