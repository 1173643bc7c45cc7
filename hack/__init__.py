"""Programs for people and make: clusters, images, generators, the release, the demo."""
