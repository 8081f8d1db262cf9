"""Protocols for Hamming distances of two clients' codes; the server learns only the distances."""
