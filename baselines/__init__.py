"""Baselines that the methods are compared with, server and client side in one file."""
