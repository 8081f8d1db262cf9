"""Data sources, partitions and simulated federations."""
