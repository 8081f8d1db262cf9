"""The Flower app's server side: runs training or labeling, and records the results."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from logging import ERROR, INFO
from pathlib import Path

from flwr.app import Context
from flwr.common import log
from flwr.serverapp import Grid, ServerApp

from fedul_flwr.config.base import user_code_error, user_code_trace, without_exit
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import LAST_MODEL, RunConfig, refuse_existing, resolve
from fedul_flwr.config.trusted_modules import named_modules
from fedul_flwr.data.run_files.run import ERROR as ERROR_FILE
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.data.run_files.store import lock_directory, locked, note_run
from fedul_flwr.errors import StorageError, UserError, in_one_sentence
from fedul_flwr.federated.grid import announce_end, polled
from fedul_flwr.learning.device import retain_freed_memory, set_threads
from fedul_flwr.results.facts import summary_rows
from fedul_flwr.run.callbacks import Callback, Callbacks, named
from fedul_flwr.run.labeling import label
from fedul_flwr.run.summary import ModelCard, Pictures
from fedul_flwr.run.tracking import Tracking, refuse_missing, tools
from fedul_flwr.run.training import train

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Start the run that the context's run config describes."""
    settings = resolve(context.run_config, Path.cwd())
    if not (context.run_config.get("output") or settings.resume):
        output = lock_directory(Path(settings.output))
        settings = settings.model_copy(update={"output": str(output)})
    try:
        serve(grid, settings)
    except UserError as err:
        log(ERROR, "%s", err)
        raise


def serve(grid: Grid, settings: RunConfig, callbacks: Sequence[Callback] = ()) -> None:
    """Run ``settings`` on the nodes of ``grid``.

    Parameters
    ----------
    callbacks : look at each round of training.
    """
    refuse_missing(settings.tracking)
    with locked(Path(settings.output), "server") as check:
        if not settings.resume:
            refuse_existing(Path(settings.output))  # it may have ended since
        path = Path(settings.output)
        run = Run.read(path) if settings.resume else Run(path=path)
        run.check = check
        (path / ERROR_FILE).unlink(missing_ok=True)  # of an earlier attempt
        run.remove_unfinished()
        set_threads(settings.client_threads)
        retain_freed_memory()
        grid = polled(grid)
        note_run(path, settings.num_rounds, "training")
        following = Callbacks()
        try:
            with without_exit("The run"):
                trains = find_method(settings.method).trains
                if not trains and (callbacks or settings.callback):
                    raise UserError(
                        f"Method {settings.method!r} has no rounds that callbacks could look at.",
                        "method-mismatch",
                    )
                following.add(*callbacks, *named(settings), ModelCard(run), Pictures(run))
                following.add(*(Tracking(tool, run) for tool in tools(settings.tracking)))
                (train if trains else label)(grid, settings, run, following)
            note_run(path, settings.num_rounds, "finished")
            announce_end(grid, "finished")
            for name, value in summary_rows(run).items():
                log(INFO, "%-12s %s", name, value)
        except BaseException as err:
            following.failed()
            is_stopped = not isinstance(err, Exception)  # Ctrl-C, flwr stop
            note_run(path, settings.num_rounds, "stopped" if is_stopped else "failed")
            if is_stopped:
                raise
            sentence = in_one_sentence(err)
            if sentence is None and named_modules(settings.to_flat()):
                sentence = user_code_error(err, "The run")
                if sentence is not None:
                    log(ERROR, "%s", user_code_trace(err).rstrip())
            if sentence is None:
                raise
            announce_end(grid, "failed")
            end = _with_remedy(sentence, path)
            with suppress(StorageError):
                check()
                run.write_error(end.with_code)
            raise end from (err if sentence is not err else err.__cause__)


def _with_remedy(error: UserError, directory: Path) -> UserError:
    """``error``; if a file could not be written, with the command that goes on later."""
    if not isinstance(error, StorageError) or not (directory / LAST_MODEL).exists():
        return error
    return StorageError(
        f"{error} Complete rounds stay as they are: once files can be written again, "
        f"fedul-flwr run --resume {directory} goes on after them."
    )
