"""All that leaves a client in a run, by message, and what its settings do not protect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from fedul_flwr.config.method_settings import AdmissionSettings
from fedul_flwr.config.methods import METHODS, find_method
from fedul_flwr.config.run_config import RunConfig, once
from fedul_flwr.federated.client_data import data_class_of
from fedul_flwr.federated.messages import (
    APPROVAL,
    ARRAYS,
    BECAUSE,
    DESCRIBE,
    DIGEST,
    PART,
    SETUP,
)
from fedul_flwr.federated.payload import (
    AVERAGED,
    EVERY_ROUND,
    MODEL,
    OF_ALL,
    ONCE,
    TEXT,
    TRAIN,
    UPDATE,
    Declared,
    Part,
    Parts,
    in_run,
    in_words,
)
from fedul_flwr.federated.stage import are_hidden, stages_of, sums_of

_WHICH = "which client it is"
WHO: Parts = {
    "partition-id": Part.count(says=_WHICH),
    "num-partitions": Part.count(says=_WHICH),
    "own-data": Part(says=_WHICH),
}
_APPROVAL = "whether its owner has approved the run, and the reason"
REGISTERED: Parts = {
    **WHO,
    **{
        name: Part(
            TEXT,
            says=_APPROVAL,
            often="before round 1, until it is approved",
            undisturbed=False,
        )
        for name in (APPROVAL, DIGEST, BECAUSE)
    },
}
"""Sent by every client before round 1, beside what its data tell."""

UPDATES: Parts = {
    ARRAYS: Part(MODEL, says="the model after local training", reader=AVERAGED),
    **OF_ALL,
}
"""Sent by every client that trains the model."""


@once
def declared(settings: RunConfig) -> Declared:
    """All that a client sends in a run, by message."""
    method = find_method(settings.method)
    client = method.client_class
    if not method.asks_clients or method.server_alone(settings):
        return {DESCRIBE: WHO}
    registered = {**REGISTERED, **data_class_of(settings).registers}
    sent: list[Declared] = [{DESCRIBE: WHO, SETUP: registered}]
    if method.trains_clients:
        sent += [{TRAIN: {**UPDATES, **client.reports}}]
    stages = stages_of(settings)
    sent += [*(stage.sends(settings) for stage in stages), client.answers]
    sent += [{PART: {name: part for name, part in sums_of(settings).items() if name != UPDATE}}]
    sent_by_phase: dict[str, Parts] = {}
    for one in sent:
        for phase, parts in one.items():
            sent_by_phase[phase] = {**sent_by_phase.get(phase, {}), **in_run(parts, settings)}
    return reduce(lambda parts, stage: stage.as_sent(parts, settings), stages, sent_by_phase)


@dataclass(frozen=True)
class Sent:
    """What an owner reads of parts that say the same.

    Attributes
    ----------
    phase, names : the message, and the names in it.
    part : the declaration of one of them.
    """

    phase: str
    names: tuple[str, ...]
    part: Part

    @property
    def often(self) -> str:
        """When it is sent."""
        by_message = {DESCRIBE: "once, asked of some of the clients", TRAIN: EVERY_ROUND}
        return self.part.often or by_message.get(self.phase, ONCE)

    def __str__(self) -> str:
        return f"{self.part.says}: to {self.part.reader}; {self.often}"


def disclosures(settings: RunConfig) -> list[Sent]:
    """All that a client sends in a run, in words for owners."""
    return [
        Sent(phase, names, part)
        for phase, parts in declared(settings).items()
        for names, part in in_words(parts)
    ]


# What a run's settings do not protect, in sentences for data owners and ethics boards.


def unprotected(settings: RunConfig) -> Iterator[str]:
    """One sentence for each thing that somebody other than the owner can learn or do.

    Parameters
    ----------
    settings : all settings of the run, with those that depend on the data resolved.
    """
    method = find_method(settings.method)
    if method.trains_clients:
        yield from _of_updates(settings)
    for stage in stages_of(settings):
        yield from stage.unprotected(settings)
    yield from method.unprotected(settings)
    tables = settings.sections.values()
    if any(isinstance(one, AdmissionSettings) and one.share_priors for one in tables):
        yield "The server gets the class shares of every set."
    if settings.method not in METHODS:
        yield (
            "The method is somebody's own: what its program sends beyond this list, nobody has "
            "checked here."
        )
    yield "The server sees how many points an owner has, and when and how much its machine sends."
    yield (
        "Owners' machines run the program that the server sends. Whoever runs the server can send "
        "another one, which can read what the user of the SuperNode can read."
    )


def _of_updates(settings: RunConfig) -> Iterator[str]:
    if not are_hidden(settings):
        yield (
            "The server sees the model of each owner by itself: models are not added up under "
            "encryption."
        )
    if not any(stage.noises for stage in stages_of(settings)):
        yield (
            "Updates are neither clipped nor noised: whoever has one, or the model of the run, may "
            "find out something about the points that it was trained on."
        )
