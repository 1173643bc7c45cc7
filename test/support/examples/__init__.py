"""Examples: the outcome that each of them promises."""
