"""The Flower app's client side: a client of the run's method answers every message."""

from fedul_flwr.federated.owner.door import build_client, make_client_app, owner_log_mod

app = make_client_app(build_client, mods=[owner_log_mod])
