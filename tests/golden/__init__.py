"""Does the program still give the same bits? Kept while the code is being moved."""
