"""Run studies one after the other, or some side by side in processes of their own."""

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
from fedul_flwr.experiments.row_search import Say, StudyTask, run_study
from fedul_flwr.experiments.search_file import make_found, read_searches, write_searches
from fedul_flwr.experiments.search_plan import StudyPlan

Records = Sequence[Mapping[str, Any]]


def run_searches(
    plans: Sequence[StudyPlan],
    file: Path,
    name: str,
    jobs: int,
    say: Say,
    command: Callable[[StudyPlan], str],
) -> int:
    """Run what the studies lack, and keep the search of each row as soon as it ends.

    Trials of one study run one after the other, whatever ``jobs`` is: which of them are pruned
    depends on no clock.

    Parameters
    ----------
    file : where searches are kept; those of other rows stay.
    name : of the table, or of the file of runs.
    jobs : studies that run at the same time.
    command : makes the search of a study again.

    Returns
    -------
    Number of trials that failed.
    """
    failed = 0
    for plan, records in _ended(plans, jobs, say):
        known = read_searches(file)
        found = make_found(plan, records, known.get(plan.key), command(plan))
        write_searches(file, name, {**known, plan.key: found}.values())
        failed += sum(record["state"] == "failed" for record in records)
        say(_said(plan, found))
    return failed


def _said(plan: StudyPlan, found: Mapping[str, Any]) -> str:
    chosen = found["chosen"]
    if chosen is None:
        return f"{plan.task.title}: no trial came to its end, nothing is chosen."
    text = plan.task.criterion.text(chosen["value"])
    return f"{plan.task.title}: trial {chosen['trial'] + 1} is chosen, {text}."


def _ended(plans: Sequence[StudyPlan], jobs: int, say: Say) -> Iterator[tuple[StudyPlan, Records]]:
    if jobs == 1 or len(plans) < 2:
        for plan in plans:
            yield plan, run_study(plan.task, say)
        return
    with _processes(min(jobs, len(plans))) as pool:
        waiting: dict[Future[Records], StudyPlan] = {
            pool.submit(_in_process, plan.task): plan for plan in plans
        }
        for future in as_completed(waiting):
            try:
                records = future.result()
            except BrokenProcessPool:
                raise UserError(
                    "A process of the search was killed, perhaps for want of memory: the same "
                    "command goes on, with fewer --jobs if you like."
                ) from None
            yield waiting[future], records


@contextlib.contextmanager
def _processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes; with an error or Ctrl-C here they end at once, and what waits never runs."""
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
    """End with the first process, however it ends.

    Ctrl-C reaches all processes of a terminal: here it is left to the first one, which ends the
    others.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "it runs in a process of the pool"
    parent.join()
    os._exit(1)


def _in_process(task: StudyTask) -> Records:
    return run_study(task, _print)


def _print(text: str) -> None:
    print(text, flush=True)


def refuse_missing() -> None:
    """Refuse to search without Optuna.

    Raises
    ------
    UserError
        Saying how to get it.
    """
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise UserError(
            "fedul-flwr tune needs Optuna: pip install 'fedul-flwr[tune]', or in a checkout "
            "pip install -e '.[tune]' (make setup has it)."
        ) from None
