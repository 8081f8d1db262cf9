"""Hamming distances between codes of two clients, of which the server sees only these."""
