"""The papers' tables: their figures, the runs behind ours, and both side by side."""
