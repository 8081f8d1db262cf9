"""Rounds between a server and its clients: strategy, client, messages and their checks."""
