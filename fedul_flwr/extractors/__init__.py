"""Fixed functions from points to vectors: pretrained networks, saved models, users' functions."""
