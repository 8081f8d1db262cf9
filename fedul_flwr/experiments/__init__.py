"""Experiments: compare methods, reproduce the papers' tables, search settings."""
