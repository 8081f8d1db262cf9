"""The error of a head in closed form without a label, from class shares of its clients' sets."""

from __future__ import annotations

from collections.abc import Mapping
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message
from flwr.common import log

from fedul_flwr.arrays import Floats
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import HeadSettings
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import Content, numbers
from fedul_flwr.errors import TooFewLeftError
from fedul_flwr.federated.client import weight_type
from fedul_flwr.federated.messages import PRIOR, to_arrays
from fedul_flwr.federated.payload import Sum
from fedul_flwr.federated.stage import ClientStage, Finished, RoundAtServer, ServerStage, Stage
from fedul_flwr.federated.stages import heads
from fedul_flwr.federated.stages.heads import features_of, head_names
from fedul_flwr.learning.closed_form import posteriors
from fedul_flwr.learning.known_error import (
    ARRAYS_OF_ONE,
    MOST_CLASSES,
    KnownError,
    LeaveOneOut,
    ShareSums,
    known_error,
    share_sums_size,
)
from fedul_flwr.secure.words import FIXED

OF_ERRORS = "known-error"
"""Name of the sum."""
_WEIGHT, _BIAS = "before/weight", "before/bias"
"""Arrays of the head before, whose posteriors a refined head is of."""
_BESIDE = ARRAYS_OF_ONE | {_WEIGHT, _BIAS}
_PART, _STATED = "part", "stated"
"""Values: how far the head's covariance is shrunk, and whether it is of what is stated."""
_NORMAL = 1.96
"""Standard errors on each side of an interval of 95 %."""


class AtClient(ClientStage):
    """Says what the head without a point makes of the point, summed over its points."""

    def part(self, of: str, content: Content) -> Floats | None:
        """Sums of class shares and predictions."""
        if of != OF_ERRORS:
            return None
        client, arrays = self.client, content.arrays
        names = head_names(self.settings, client.data.model_shape, client.num_classes)
        model = {name: array for name, array in arrays.items() if name not in _BESIDE}
        points = client.point_shares()
        stated = bool(content.values[_STATED])
        summed = points.stated if stated else points.shares.any(axis=1)  # as for the head
        features, _ = features_of(client, model, points.inputs, points.points[summed])
        features, shares = features[points.stated[summed]], points.shares[points.stated]
        soft = shares
        if not stated:
            before = features[:, 0] @ arrays[_WEIGHT].T.astype(np.float64) + arrays[_BIAS]
            soft = posteriors(before, shares, numbers(content, PRIOR))
        one = LeaveOneOut.of_arrays(arrays, float(numbers(content, _PART)[0]))
        weight = model[names[0]].astype(np.float64)
        said = one.logits(features, soft, weight, stated=stated).argmax(axis=1)
        sums = ShareSums.of(shares, said)
        if client.node.data:
            self._say(sums)
        return sums.flat()

    def _say(self, sums: ShareSums) -> None:
        """Print on the owner's machine alone how the common model does on its own points."""
        masses = sums.gram.sum(axis=1)
        try:
            here = known_error(sums, masses / max(1.0, masses.sum()))
        except ValueError:  # its own sets do not tell the classes apart
            return
        text = in_words(here, self.settings)
        print(f"Client {self.client.node.partition_id}: error on its own points {text}.")


class AtServer(ServerStage):
    """Asks for the sums after each head, and makes an error of them."""

    def ask_losses(self, round: RoundAtServer, config: ConfigRecord) -> list[Message]:
        """None: what it asks for is a sum."""
        del config
        strategy, classes = self.strategy, self.strategy.num_classes
        of_heads = next(one for one in strategy.stages if isinstance(one, heads.AtServer))
        head = of_heads.last
        if head is None or classes > MOST_CLASSES or not self.settings.is_evaluated(round.number):
            return []
        kind, stated = weight_type(self.settings), head.turn == heads.HEADS[0]
        rng = stream(self.settings.seed, "leave-one-out", round.number)
        one = LeaveOneOut.of(head.gaussians, head.gram, head.prior, head.part, head.spectrum, rng)
        arrays = to_arrays(round.model) | one.arrays(kind)
        if not stated:
            before = zip((_WEIGHT, _BIAS), head.before, strict=True)
            arrays |= {name: np.asarray(value, kind) for name, value in before}
        values = {
            "server-round": round.number,
            PRIOR: head.prior.tolist(),
            _PART: [head.part],
            _STATED: stated,
        }
        clients = strategy.registry.present(strategy.registry.clients)
        size = share_sums_size(classes)
        try:
            flat, _ = strategy.sums.collect(round.grid, OF_ERRORS, clients, size, arrays, values)
            made = known_error(ShareSums.of_flat(flat, classes), head.prior)
        except (TooFewLeftError, ValueError) as error:
            log(
                WARNING,
                "Round %s: the error is not known without test data: %s.",
                round.number,
                error,
            )
            return []
        log(INFO, "Round %s: error %s.", round.number, in_words(made, self.settings))
        strategy.record.reported |= {
            "known-error": made.error,
            "known-error-deviation": made.deviation,
        }
        self.state[f"{OF_ERRORS}/{round.number}"] = np.array(
            [made.error, made.deviation, *made.confusion.ravel()]
        )
        return []

    def finish(self, run: Finished) -> Mapping[str, Any]:
        """What is known of the model that the run keeps."""
        flat = self.state.get(f"{OF_ERRORS}/{run.round}")
        if flat is None:
            return {}
        classes = self.strategy.num_classes
        confusion = flat[2:].reshape(classes, classes)
        made = KnownError(float(flat[0]), float(flat[1]), confusion)
        return {
            "known_error": made.error,
            "known_error_interval": interval(made),
            "known_confusion": made.confusion.tolist(),
            "known_from": source(self.settings),
        }


def interval(made: KnownError) -> list[float]:
    """95 % interval of an error, in percent."""
    low, high = (made.error + sign * _NORMAL * made.deviation for sign in (-1, 1))
    return [max(0.0, float(low)), min(100.0, float(high))]


def source(settings: RunConfig) -> str:
    """From what it is known."""
    of_sets = find_method(settings.method).data == "unlabeled-sets"
    return "class shares, without labels" if of_sets else "labels"


def in_words(made: KnownError, settings: RunConfig) -> str:
    """Such as ``14.2 % (13.1 to 15.4), from class shares, without labels``."""
    low, high = interval(made)
    return f"{made.error:.1f} % ({low:.1f} to {high:.1f}), from {source(settings)}"


class KnowsError(Stage):
    """The error of heads in closed form is known from what is stated of clients' points."""

    server, client = AtServer, AtClient

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """Where nothing is trained, sums are masked, and heads have no noise: what a network has
        learned from a point cannot be taken out of it again, and noise would need a budget."""
        method = find_method(settings.method)
        noise = settings.makes_heads and settings[HeadSettings].epsilon > 0
        return settings.makes_heads and settings.sums_heads and not (method.updates or noise)

    @classmethod
    def sums(cls, settings: RunConfig) -> Mapping[str, Sum]:
        """Of class shares and predictions."""
        del settings
        says = "sums over its points of class shares, their products, and what the model says"
        return {
            OF_ERRORS: Sum.of(says, "every round that is evaluated", encoding=FIXED, beside=_BESIDE)
        }
