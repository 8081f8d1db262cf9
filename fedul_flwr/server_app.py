"""The Flower app's server side: runs training or labeling, and records the results."""

from __future__ import annotations

from logging import ERROR, INFO
from pathlib import Path

from flwr.app import Context
from flwr.common import log
from flwr.serverapp import Grid, ServerApp

from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.errors import UserError
from fedul_flwr.federated.grid import for_devices
from fedul_flwr.learning.device import keep_freed_memory, set_threads
from fedul_flwr.methods import find_method
from fedul_flwr.results import store
from fedul_flwr.results.summary import summary_rows
from fedul_flwr.results.tracking import refuse_missing, tracked
from fedul_flwr.run.labeling import label
from fedul_flwr.run.training import Watch, train

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Start the run that the context's run config describes."""
    serve(grid, resolve(context.run_config, Path.cwd()))


def serve(grid: Grid, settings: RunConfig, watch: Watch | None = None) -> None:
    """Run ``settings`` on the nodes of ``grid``.

    Parameters
    ----------
    watch : called after every round of training, see :data:`fedul_flwr.run.training.Watch`.
    """
    refuse_missing(settings.tracking)
    directory = store.RunDirectory(Path(settings.output))
    directory.create()
    set_threads(settings.client_threads)
    keep_freed_memory()
    try:
        with tracked(settings.tracking, directory) as add_round:
            if find_method(settings.method).trains:
                train(for_devices(grid), settings, directory, add_round, watch)
            else:
                label(for_devices(grid), settings, directory)
        for name, value in summary_rows(directory.path).items():
            log(INFO, "%-12s %s", name, value)
    except UserError as err:
        log(ERROR, "%s", err)
        directory.write_error(str(err))
        raise
