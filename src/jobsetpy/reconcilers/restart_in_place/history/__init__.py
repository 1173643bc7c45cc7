"""Records of restarts, and what is measured of them."""
