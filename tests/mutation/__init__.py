"""`make mutants`: does a test fail for every small change of the methods' mathematics?"""
