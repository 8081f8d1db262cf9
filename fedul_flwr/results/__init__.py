"""Results of a run: records, plots, reports, predictions."""
