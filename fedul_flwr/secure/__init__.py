"""Secure computations among clients: similarities of points, and sums of labels."""
