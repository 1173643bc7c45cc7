"""Generators of committed files; ``make generate`` runs them, ``make verify`` compares."""
