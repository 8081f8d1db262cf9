"""A Flower app without work, to measure Flower's own cost."""
