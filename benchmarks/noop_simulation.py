"""The app without work in Flower's simulation: ``python -m benchmarks.noop_simulation``.

Arguments: numbers of rounds and of clients, and the file that gets the end of every round.
"""

import sys

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from benchmarks.noop_app.noop_app.client_app import app as client
from benchmarks.noop_app.noop_app.server_app import run

ROUNDS, CLIENTS, FILE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    del context
    run(grid, ROUNDS, CLIENTS, FILE)


EACH = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
run_simulation(server, client, CLIENTS, backend_config=EACH)
