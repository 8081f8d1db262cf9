"""``python -m fedul_flwr.cli``."""

from fedul_flwr.cli.main import program

program()
