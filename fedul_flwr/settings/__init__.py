"""Settings classes: what can be set, its type, range and default."""
