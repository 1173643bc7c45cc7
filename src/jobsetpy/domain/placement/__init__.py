"""Exclusive placement: one topology domain for each Job."""
