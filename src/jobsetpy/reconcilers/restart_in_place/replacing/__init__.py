"""Pods that leave without counting as completed, and successors of pods that failed."""
