"""A simulation's split before round 1: a line, warnings, ``federation.json``, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from logging import WARNING

import numpy as np
from flwr.common import log

from fedul_flwr.arrays import Ints
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.run_files.records import Federation
from fedul_flwr.data.run_files.run import SPLIT_PICTURE, Run
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.data.split import SetTruth, label_scenario
from fedul_flwr.data.types import class_counts
from fedul_flwr.federated.members import ClientReport
from fedul_flwr.run.server_data import ServerData


def split_in_words(data: ServerData) -> str:
    """How many points and classes simulated clients have; empty without a split."""
    if data.split is None or data.source is None:
        return ""
    clients = data.split.clients
    points = _range([len(np.unique(client.points)) for client in clients])
    classes = _range([int((_counts(client.labels, data) > 0).sum()) for client in clients])
    absent, offered = _points(data)
    rest = f"{absent:,} of {offered:,} points ({absent / max(offered, 1):.1%}) are at no client"
    return (
        f"Split: {len(clients)} clients with {points} points each and {classes} of "
        f"{data.source.num_classes} classes; {rest if absent else 'no point is at none'}."
    )


def split_warnings(data: ServerData, settings: RunConfig) -> list[str]:
    """Sentences about classes and points that no simulated client has."""
    if data.split is None or data.source is None:
        return []
    split, said = data.split, []
    of_server = np.asarray(data.source.train.labels)[split.server]
    points = sum(_counts(client.labels, data) for client in split.clients)
    there = np.asarray(points) > 0
    if not there.all():
        said.append(f"No client has a point of {_named(data, ~there)}: models cannot learn that.")
    if split.label_truths and label_scenario(settings) != "server":
        labels = [*(client.observed for client in split.label_truths), of_server]
        unlabeled = there & (_counts(np.concatenate(labels), data) == 0)
        if unlabeled.any() and not unlabeled.all():
            said.append(f"No client has a label of {_named(data, unlabeled)}.")
    absent, offered = _points(data)
    if absent and not settings.points_per_client:  # which says how many there shall be
        in_sets = isinstance(split.clients[0], SetTruth)
        where = "in no set of a client" if in_sets else "at no client"
        said.append(
            f"{absent:,} of {offered:,} training points ({absent / offered:.1%}) are {where}."
        )
    return said


def show_split(run: Run, data: ServerData, settings: RunConfig) -> list[str]:
    """Write ``federation.json`` of a new run's split, with ``figures = "all"`` its picture too, and
    log its warnings."""
    said = split_warnings(data, settings)
    for text in said:
        log(WARNING, "%s", text)
    if data.split is None or data.source is None or run.federation is not None:
        return said
    reports = [
        ClientReport(number, num_points=len(client.points))
        for number, client in enumerate(data.split.clients)
    ]
    write_reports(run, reports, data)
    if settings.figures == "all":
        _draw(run)
    return said


def write_reports(run: Run, reports: Sequence[ClientReport], data: ServerData) -> None:
    """Write ``federation.json``, with what a simulation knows of its clients."""
    for report in reports:
        data.complete(report)
    clients, names = [vars(report) for report in reports], data.shape.class_names
    run.store(federation=Federation.model_validate({"clients": clients, "class_names": names}))


def _draw(run: Run) -> None:
    from fedul_flwr.results.figure_style import draw
    from fedul_flwr.results.plots import priors_figure

    try:
        picture = draw(priors_figure(run), "png")
    except Exception as error:  # of matplotlib or its fonts: training needs no picture
        log(WARNING, "There is no picture of the split: %s", error)
    else:
        write_atomically(run.path / SPLIT_PICTURE, picture)


def _counts(labels: Ints, data: ServerData) -> Ints:
    return class_counts(labels, len(data.shape.class_names))


def _points(data: ServerData) -> tuple[int, int]:
    """Training points at no client, and all but those that the server keeps."""
    assert data.split is not None
    assert data.source is not None
    split = data.split
    at_server = len(np.union1d(split.validation, split.server))
    offered = len(data.source.train.labels) - at_server
    return offered - len(np.unique(np.concatenate([c.points for c in split.clients]))), offered


def _named(data: ServerData, which: np.ndarray) -> str:
    names = [data.shape.class_names[k] for k in np.flatnonzero(which)]
    return f"class{'es' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
