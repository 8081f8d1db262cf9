"""A Flower app without work in it, for ``benchmarks/message_cost.py``."""
