"""Settings: their classes, defaults, overrides and checks."""
