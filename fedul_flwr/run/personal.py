"""Personal models at the end of a run: the phase, and what a simulation knows of them.

Owners' models and errors stay with them. A simulation's are measured here.
"""

from __future__ import annotations

from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.config.run_config import LAST_MODEL
from fedul_flwr.data.run_files.store import BEST_MODEL, PERSONAL, PERSONAL_MODEL
from fedul_flwr.data.safe_files import load_arrays_of
from fedul_flwr.data.types import Arrays, Content, Ints
from fedul_flwr.federated.grid import run_phase
from fedul_flwr.federated.messages import PERSONAL as PHASE
from fedul_flwr.federated.strategy import Strategy
from fedul_flwr.run.evaluation import Evaluator, Recorder
from fedul_flwr.run.measures import confusion, prior_error
from fedul_flwr.run.server_data import ServerData


def personalize(
    grid: Grid, strategy: Strategy, recorder: Recorder, data: ServerData
) -> dict[str, Any]:
    """Let every client make its personal model; returns the summary's entry.

    A client that fails is left out: the run itself is complete.
    """
    settings, directory = recorder.settings, recorder.directory
    if settings.personal == "off":
        return {}
    best = recorder.best()
    name, number = (BEST_MODEL, best["round"]) if best else (LAST_MODEL, len(recorder.lines))
    arrays = directory.load_model(name)[0]
    if not strategy.registry.clients:  # the run goes on after its last round
        strategy.registration.register_all(grid)
        strategy.columns.share(grid)
    clients = strategy.registry.clients
    content = Content(arrays, {"round": number})
    nodes = {client.node_id: content for client in clients}
    phase = run_phase(grid, nodes, PHASE, settings.round_timeout)
    failed = phase.failures | phase.refusals
    for client in clients:
        if client.node_id in failed:
            log(WARNING, "%s has no personal model: %s", client, failed[client.node_id])
    about: dict[str, Any] = {
        "kind": settings.personal,
        "round": number,
        "failures": len(failed),
        "bytes_up": phase.bytes_up,
        "bytes_down": phase.bytes_down,
    }
    answered = [client.partition_id for client in clients if client.node_id not in failed]
    files = {client: directory.clients / str(client) / PERSONAL_MODEL for client in answered}
    if not any(file.exists() for file in files.values()):
        log(INFO, "Personal models are where the clients run.")
        return {"personal": about}
    for report in strategy.registry.reports:
        data.complete(report)
    counts = {report.id: report.class_counts for report in strategy.registry.reports}
    rows = [
        _measured(client, file, arrays, counts[client], recorder.evaluator)
        for client, file in files.items()
    ]
    directory.write_json(PERSONAL, {**about, "clients": rows}, indent=None)
    return {"personal": about | _compared(rows)}


def _measured(
    client: int, file: Path, arrays: Arrays, counts: list[int] | None, evaluator: Evaluator | None
) -> dict[str, Any]:
    """What a client found, and errors on test points in its class shares."""
    tuned, facts = load_arrays_of(file)
    row = {"client": client, **facts}
    for key in ("personal", "round"):
        del row[key]
    if evaluator is not None and counts is not None and len(evaluator.test.points):
        shares = np.array(counts, dtype=np.int64)
        row["test_error"] = test_error(evaluator, arrays | tuned, shares)
        row["global_test_error"] = test_error(evaluator, arrays, shares)
    return row


def test_error(evaluator: Evaluator, arrays: Arrays, counts: Ints) -> float | None:
    """Percent wrong on test points with a client's class shares.

    Parameters
    ----------
    counts : ``(K,)``, the client's points of each class.

    Returns
    -------
    ``None`` if the client has no point, or a class without a test point.
    """
    test = evaluator.test
    logits = evaluator.logits(arrays, test)
    matrix = confusion(test.labels, logits.argmax(axis=1), logits.shape[1])
    present = counts > 0
    if not present.any() or (matrix.sum(axis=1)[present] == 0).any():
        return None
    return prior_error(matrix, counts / counts.sum())


def _compared(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the clients whose errors are known, and how many gain and lose.

    Errors on test points count where they are known, else those on labels set aside.
    """
    prefix = "test_" if any(row.get("test_error") is not None for row in rows) else ""
    keys = f"{prefix}error", f"global_{prefix}error"
    pairs = [(row[keys[0]], row[keys[1]]) for row in rows if row.get(keys[0]) is not None]
    if not pairs:
        return {"measured_on": "nothing"}
    tuned, shared = np.array(pairs).T
    return {
        "measured_on": "test points" if prefix else "labels set aside",
        "clients": len(pairs),
        "error": float(tuned.mean()),
        "global_error": float(shared.mean()),
        "better": int((tuned < shared).sum()),
        "worse": int((tuned > shared).sum()),
    }
