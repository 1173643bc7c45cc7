"""Code that tests, benchmarks and the commands in ``hack`` share."""
