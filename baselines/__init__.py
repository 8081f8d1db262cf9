"""What the methods are compared with, both sides in one file."""
