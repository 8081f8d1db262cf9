"""One search for settings: the same for every method of a table, and never by test error."""
