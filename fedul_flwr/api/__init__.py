"""Runs, results and estimators for use from Python; ``import fedul_flwr`` exports them."""
