"""Speed, scale and cost, each as ratios from one run of ``python -m benchmarks``."""
