"""Sums over clients of which the server reads nothing else."""
