"""What a run leaves on disk: its files, their content, and who writes them."""
