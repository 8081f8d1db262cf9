"""Does the program still give the numbers that it has given before?"""
