"""Benchmarks of speed, scale and cost, as ratios from one run of ``python -m benchmarks``."""
