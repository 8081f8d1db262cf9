"""Server side of every method, one file each."""
