"""Several methods on the same splits and seeds: plan, execution, statistics, table and figure."""
