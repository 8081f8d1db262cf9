"""Features of runs beside their method, a file each."""
