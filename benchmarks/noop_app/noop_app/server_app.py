"""FedAvg with one small array; writes the end of every round to the file ``output``."""

import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    run(grid, int(config["num-rounds"]), int(config["num-clients"]), str(config["output"]))


def run(grid: Grid, num_rounds: int, count: int, output: str) -> None:
    """So many rounds with so many clients."""
    while len(list(grid.get_node_ids())) < count:
        time.sleep(0.1)

    def note_time(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        del arrays
        with Path(output).open("a") as file:
            file.write(f"{server_round} {time.time()}\n")
        return MetricRecord()

    strategy = FedAvg(
        fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=count, min_available_nodes=count
    )
    strategy.start(
        grid,
        ArrayRecord({"array": Array(np.zeros(4, dtype=np.float32))}),
        num_rounds=num_rounds,
        evaluate_fn=note_time,
    )
