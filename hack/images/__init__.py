"""Container images, built without a container engine and without a registry."""
