"""What tests, benchmarks and the commands in ``hack`` share."""
