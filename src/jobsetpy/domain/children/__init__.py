"""What a JobSet's children should be: Jobs, Service, volume claims; the order of decisions."""
