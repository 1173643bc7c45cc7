"""Group scheduling (KEP-498): pods that start together."""
