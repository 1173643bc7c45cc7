"""A package, so that the clusters of this folder end with its last test."""
