"""What an owner of data is promised, and what is kept of that on its machine."""
