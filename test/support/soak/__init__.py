"""Soak: random lives of JobSets, and the managers that live through them."""
