"""Steps of a run at the server: setup, training or labeling, evaluation."""
