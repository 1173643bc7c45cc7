"""Decision on epochs: the rule of the barrier, the budget, other limits, and who needs a seat."""
