"""Speed, scale and cost, each as ratios from one run: ``python -m benchmarks [names …] [--quick]``."""
