"""Tests of what measures speed: that it runs, not how fast."""
