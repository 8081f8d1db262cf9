"""Run the searches of rows one after the other, or several at a time in processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import psutil

from fedul_flwr.errors import UserError
from fedul_flwr.experiments.row_search import RowSearch, run_search
from fedul_flwr.experiments.run_trials import Say
from fedul_flwr.experiments.search_file import (
    StoredSearch,
    make_search,
    read_searches,
    write_searches,
)

Records = Sequence[Mapping[str, Any]]


def run_searches(
    tasks: Sequence[RowSearch],
    file: Path,
    name: str,
    jobs: int,
    say: Say,
    command: Callable[[RowSearch], str],
) -> int:
    """Run the searches, and store the search of each row as soon as it ends.

    The trials of one row run one after the other whatever ``jobs`` is, so which trials stop early
    does not depend on their speed.

    Parameters
    ----------
    file : file of the stored searches; searches of other rows stay in it.
    name : name of the table, or of the file of runs.
    jobs : number of rows that are searched at the same time.
    command : command that makes the search of a row again.

    Returns
    -------
    Number of trials that failed.
    """
    failed = 0
    for task, records in _ended(tasks, jobs, say):
        known = read_searches(file)
        key = task.row, task.column
        found = make_search(task, records, known.get(key), command(task))
        write_searches(file, name, {**known, key: found}.values())
        failed += sum(record["state"] == "failed" for record in records)
        say(_text(task, found))
    return failed


def refuse_without_optuna() -> None:
    """Refuse to search if Optuna is not installed.

    Raises
    ------
    UserError
        With the command that installs it.
    """
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise UserError(
            "fedul-flwr tune needs Optuna: pip install 'fedul-flwr[tune]', or in a checkout "
            "pip install -e '.[tune]' (make setup installs it)."
        ) from None


def _text(task: RowSearch, found: StoredSearch) -> str:
    chosen = found["chosen"]
    if chosen is None:
        return f"{task.title}: no trial was complete, so no settings are chosen."
    text = task.criterion.text(chosen["value"])
    return f"{task.title}: trial {chosen['trial'] + 1} is chosen, {text}."


def _ended(tasks: Sequence[RowSearch], jobs: int, say: Say) -> Iterator[tuple[RowSearch, Records]]:
    if jobs == 1 or len(tasks) < 2:
        for task in tasks:
            yield task, run_search(task, say)
        return
    with _processes(min(jobs, len(tasks))) as pool:
        waiting: dict[Future[Records], RowSearch] = {
            pool.submit(_search_in_process, task): task for task in tasks
        }
        for future in as_completed(waiting):
            try:
                records = future.result()
            except BrokenProcessPool:
                raise UserError(
                    "A process of the search was killed, perhaps because memory ran out. The same "
                    "command resumes the search; fewer --jobs need less memory."
                ) from None
            yield waiting[future], records


@contextlib.contextmanager
def _processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """New processes; after an error or Ctrl-C they end at once and run no waiting task."""
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_follow_parent)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if "spawn_main" in " ".join(process.cmdline()):
                    process.terminate()
        raise
    finally:
        pool.shutdown()


def _follow_parent() -> None:
    """End this process when its parent ends, however that happens.

    Ctrl-C reaches all processes of a terminal; the parent alone handles it and ends the others.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "it runs in a process of the pool"
    parent.join()
    os._exit(1)


def _search_in_process(task: RowSearch) -> Records:
    return run_search(task, _print)


def _print(text: str) -> None:
    print(text, flush=True)
