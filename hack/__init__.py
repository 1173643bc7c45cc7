"""What is run by hand or by make: clusters, images, generators, the release, the demo."""
