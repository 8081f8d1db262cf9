"""Attacks on the program: bad input, hostile replies, killed processes, broken encryption."""
