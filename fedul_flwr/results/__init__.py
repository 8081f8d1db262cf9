"""What a run leaves behind: records, plots, reports, predictions."""
