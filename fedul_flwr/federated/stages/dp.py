"""Differential privacy: clipping and Gaussian noise around a base that computes a mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from numpy.typing import NDArray

from fedul_flwr.arrays import Floats
from fedul_flwr.config.base import setting_error
from fedul_flwr.config.methods import METHODS, find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.asked import Asked
from fedul_flwr.federated.combine import clip_update, clipped
from fedul_flwr.federated.grid import forwarded
from fedul_flwr.federated.messages import (
    ARRAYS,
    NORMALIZER,
    WEIGHT,
    PlainArray,
    Spool,
    array_record,
    metric,
)
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.owner.ledger import DELTA, Ledger, epsilon_of, ledger_file, spender
from fedul_flwr.federated.payload import (
    CONFIDENT,
    OF_ALL,
    STEPS,
    Declared,
    Payload,
    in_run,
    reports_of,
)
from fedul_flwr.federated.stage import (
    ClientStage,
    RunEndsError,
    ServerStage,
    Stage,
    are_hidden,
    stages_of,
)
from fedul_flwr.federated.sums.vector import fewest_summed
from fedul_flwr.secure.noise import fresh_gaussians, gaussian_epsilon
from fedul_flwr.secure.sharing import quorum
from fedul_flwr.secure.words import step_size

if TYPE_CHECKING:
    from torch import nn

COVERS = "all data of one client, in the models of all rounds; no other message or figure of it"
"""The data that epsilon covers."""
RELEASES, MU_SQUARED = "releases", "mu-squared"

Changes = Mapping[tuple[str, str], Floats]
"""What an update adds to a sum, by record and name."""


class PrivateMean(FlowerStrategy):
    """A base behind clipping of updates and Gaussian noise on their mean (McMahan et al. 2018).

    One client moves the sum of clipped updates by C at most, and the noise on it has the standard
    deviation z·C: a Gaussian release with μ = 1/z. All releases together are exactly one with
    μ² = Σ 1/z² (Dong, Roth and Su 2022). Rounds compose as if every client took part in each: no
    amplification by sampling. If a sampled client returns no update, the round releases nothing:
    the model stays as it was, and no epsilon is spent.

    With secure sums the clients add the noise to their parts of the sum
    (:func:`add_noise`): enough for a release that misses as
    many clients as may drop out.

    Parameters
    ----------
    base : sends one record with the model and combines by :meth:`FedAvg.aggregate_train`.
    settings : with ``clipping`` on.
    summed : whether the replies are the mean of a secure sum, which has its noise.

    Attributes
    ----------
    releases : number of releases so far.
    mu_squared : μ² of all of them together.
    exhausted : whether the last round was refused because the budget is spent.
    """

    def __init__(self, base: FedAvg, settings: DPSettings, *, summed: bool = False) -> None:
        self.base = base
        self.settings = settings
        self.summed = summed
        self.releases = 0
        self.mu_squared = 0.0
        self.exhausted = False
        self._sampled = 0
        self._start = ArrayRecord()

    @property
    def epsilon(self) -> float:
        """Epsilon of all releases so far."""
        return gaussian_epsilon(math.sqrt(self.mu_squared), self.settings.delta)

    @property
    def spent(self) -> dict[str, Any]:
        """Entries about privacy for the run's summary."""
        return {
            "epsilon": self.epsilon,
            "delta": self.settings.delta,
            "releases": self.releases,
            "epsilon_covers": COVERS,
            "budget_exhausted": self.exhausted,
        }

    @property
    def ledger(self) -> dict[str, NDArray[Any]]:
        """What was spent, for resuming; empty before the first release."""
        if not self.releases:
            return {}
        return {RELEASES: np.array(self.releases), MU_SQUARED: np.array(self.mu_squared)}

    @ledger.setter
    def ledger(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.releases, self.mu_squared = int(arrays[RELEASES]), float(arrays[MU_SQUARED])

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The base's messages, if the budget allows one more release."""
        budget, delta = self.settings.max_epsilon, self.settings.delta
        then = gaussian_epsilon(math.sqrt(self.mu_squared + mu_squared_of(self.settings)), delta)
        if budget and then > budget:
            self.exhausted = True
            if self.releases:
                raise RunEndsError("one more would exceed dp.max-epsilon")
            why = "one round alone exceeds it; raise it or dp.noise-multiplier"
            raise setting_error("dp.max-epsilon", budget, why, "privacy-budget")
        self._start, self._sampled = arrays, len(list(grid.get_node_ids()))
        return self.base.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The noisy mean, or the unchanged model if an update is missing."""
        received = [reply for reply in replies if not reply.has_error()]
        if len(received) != self._sampled and not self.summed:
            log(WARNING, "Round %s: an update is missing, so nothing is released.", server_round)
            return self._start, None
        spool = Spool()
        for reply in received if self.settings.clipping == "server" else ():
            clip_update(cast(ArrayRecord, reply.content[ARRAYS]), self._start, self.settings.norm)
            spool.add(reply)
        arrays, metrics = self.base.aggregate_train(server_round, received)
        if arrays is None or not received:
            return self._start, None
        self.releases += 1
        self.mu_squared += mu_squared_of(self.settings)
        log(INFO, "Privacy spent: epsilon = %.6g, delta = %g", self.epsilon, self.settings.delta)
        if self.summed:
            return arrays, metrics
        deviation = self.settings.noise_multiplier * self.settings.norm / self._sampled
        return with_noise(arrays, deviation), metrics

    configure_evaluate = forwarded("base", "configure_evaluate")
    aggregate_evaluate = forwarded("base", "aggregate_evaluate")
    summary = forwarded("base", "summary")


def mu_squared_of(privacy: DPSettings) -> float:
    """μ² of one release."""
    return float(privacy.noise_multiplier**-2)


def _largest(privacy: DPSettings) -> float:
    """A client's noise is at most 8.6 / √3 times z·C, as
    :data:`fedul_flwr.secure.session.FEWEST` is 3."""
    return privacy.norm * (1 + 6 * privacy.noise_multiplier)


def add_noise(
    changes: Mapping[tuple[str, str], Floats], privacy: DPSettings, step: float, least: int
) -> dict[tuple[str, str], Floats]:
    """``changes`` with one client's part of the noise of a differentially private sum.

    The sum over ``least`` clients or more has the standard deviation z·C or more. Noise is a
    multiple of ``step``: with 1,024 steps a deviation and more, parts of it add up as Gaussian
    numbers do (Kairouz, Liu and Steinke 2021). Rounding lengthens an update of d values by √d steps
    at most, which the noise covers.
    """
    size = sum(value.size for value in changes.values())
    sensitivity = privacy.norm + step * math.sqrt(size)
    deviation = privacy.noise_multiplier * sensitivity / math.sqrt(least)
    if deviation < 1024 * step:
        why = "it is too small for the steps of a secure sum among so many clients"
        multiplier = privacy.noise_multiplier
        raise setting_error("dp.noise-multiplier", multiplier, why, "setting-breaks-privacy")
    return {
        key: value
        + step * np.rint(deviation / step * fresh_gaussians(value.size)).reshape(value.shape)
        for key, value in changes.items()
    }


def with_noise(arrays: ArrayRecord, deviation: float) -> ArrayRecord:
    """``arrays`` with Gaussian noise on every number."""
    noisy = {}
    for name, array in arrays.items():
        values = array.numpy()
        noise = deviation * fresh_gaussians(values.size)
        noisy[name] = PlainArray.of((values + noise.reshape(values.shape)).astype(values.dtype))
    return array_record(noisy)


def without_noise(settings: RunConfig) -> Iterator[tuple[str, str]]:
    """What a method or stage sends beside the model: who, and its name.

    What docs/privacy.md names is left out: losses and other single numbers of built-in methods,
    which describe the training and change no model.
    """
    method, figures = find_method(settings.method), {**OF_ALL, **CONFIDENT}
    for name, part in reports_of(settings).items():
        is_figure = figures.get(name) == part or (settings.method in METHODS and not part.shape)
        if not is_figure:
            yield f"method {settings.method!r}", name
    sent = [(f"stage {settings.stage!r}", stages_of(settings)[-1].sends(settings))]
    answers: Declared = method.client_class.answers
    for of, messages in [*sent * bool(settings.stage), (f"method {settings.method!r}", answers)]:
        for parts in messages.values():
            yield from ((of, name) for name in in_run(parts, settings))


def without_figures(payload: Payload, settings: RunConfig) -> Payload:
    """``payload`` without figures of training, which follow from points and have no noise."""
    counted = (WEIGHT, STEPS, NORMALIZER)  # they follow from the number of points
    figures = {
        name
        for name, part in reports_of(settings).items()
        if part.optional and part.combine == "mean" and name not in counted
    }
    return {name: value for name, value in payload.items() if name not in figures}


class AtServer(ServerStage):
    """Adds noise to the mean, refuses what nobody may miss, and says what was spent."""

    def around(self, base: FlowerStrategy) -> FlowerStrategy:
        """The base behind clipping and noise."""
        private = self.settings[DPSettings]
        return PrivateMean(cast(FedAvg, base), private, summed=are_hidden(self.settings))

    def decode(self, client: ClientRef, reply: Message) -> bool:
        """Refuse an update of nothing."""
        del client
        if not metric(reply, WEIGHT):
            raise BadMessageError(
                f"it had nothing to learn from, and with dp.clipping = {self._clipping!r} every "
                "client of a round must return an update",
                "nothing-to-learn",
            )
        return False

    @property
    def _clipping(self) -> str:
        return self.settings[DPSettings].clipping

    def about(self) -> dict[str, Any]:
        """Entries for the summary; refuses success for a run whose model never changed."""
        base: PrivateMean = self.strategy.base
        if not base.releases:
            why = "an update was missing in every round, so that the model has never changed"
            raise setting_error("dp.clipping", base.settings.clipping, why, "no-update")
        return base.spent


class AtClient(ClientStage):
    """Sends nothing without noise, which it adds itself to what is summed."""

    def describe(self) -> Iterator[str]:
        """What the whole run spends, with all runs before, and where the owner's limit ends it."""
        node, rounds = self.client.node, self.settings.num_rounds
        if not (are_hidden(self.settings) and (file := ledger_file(node))):
            return
        before = Ledger(file).mu_squared("updates") if file.exists() else 0.0
        one = mu_squared_of(self.settings[DPSettings])
        epsilons = [epsilon_of(before + done * one) for done in range(rounds + 1)]
        yield (
            f"Privacy: {rounds} round(s) spend epsilon = {epsilons[-1]:.4g} at delta = {DELTA:g} "
            f"together with all runs before; {epsilons[0]:.4g} is spent."
        )
        most = node.max_epsilon
        if most and epsilons[-1] > most:
            last = sum(epsilon <= most for epsilon in epsilons) - 1
            yield f"max-epsilon = {most:g} ends this owner's part after {max(0, last)} round(s)."

    def check(self) -> None:
        """Refuse a run that asks for more than the model."""
        DifferentialPrivacy.validate(self.settings)

    def before(self, asked: Asked, shares: Mapping[str, Any]) -> None:
        """Refuse it also where the server has not."""
        del asked, shares
        self.check()

    def after(self, payload: Payload) -> Payload:
        """Refuse to send an update of nothing under masks."""
        privacy = self.settings[DPSettings]
        if are_hidden(self.settings) and not payload[WEIGHT] and ARRAYS in payload:
            raise UserError(
                "The client had nothing to learn from, and with dp.clipping = "
                f"{privacy.clipping!r} every client of a round must return an update.",
                "nothing-to-learn",
            )
        return without_figures(payload, self.settings) if are_hidden(self.settings) else payload

    def in_sum(self, changes: Changes, clients: int) -> Changes:
        """A clipped update with its part of the noise."""
        privacy = self.settings[DPSettings]
        spender(self.client.node)("updates", mu_squared_of(privacy))
        step = step_size(_largest(privacy), clients)
        return add_noise(clipped(changes, privacy.norm), privacy, step, quorum(clients))


class DifferentialPrivacy(Stage):
    """Clipped updates with noise, of a :class:`PrivateMean`."""

    server, client, noises = AtServer, AtClient, True

    @classmethod
    def largest_change(cls, settings: RunConfig) -> float:
        """Of an entry of a clipped update with its noise."""
        return _largest(settings[DPSettings])

    @classmethod
    def largest_move(cls, settings: RunConfig, size: int) -> float:
        """The mean of clipped updates is no longer than they are. Noise of clients, with a
        deviation of z·C/n on the mean at most, is longer than that times √d + 8 with a probability
        below 1e-13."""
        privacy = settings[DPSettings]
        deviation = privacy.noise_multiplier * privacy.norm / fewest_summed(settings)
        return privacy.norm + deviation * (math.sqrt(size) + 8)

    @classmethod
    def unprotected(cls, settings: RunConfig) -> Iterator[str]:
        """Who clips, and who adds noise."""
        privacy = settings[DPSettings]
        where = f"Updates are clipped to the length {privacy.norm:g} at the owner."
        if are_hidden(settings):
            yield f"{where} Each owner adds its part of the noise."
        elif privacy.clipping == "client":
            yield f"{where} The noise is added by the server, which sees updates without it."
        else:
            yield "The server clips updates and adds noise, and sees them without either."

    @classmethod
    def validate(cls, settings: RunConfig) -> None:
        """Refuse what would leave without noise: all but the model and figures of training."""
        if find_method(settings.method).server_alone(settings):
            clipping = settings[DPSettings].clipping
            raise setting_error(
                "dp.clipping", clipping, "no client trains", "setting-without-effect"
            )
        for of, name in without_noise(settings):
            why = f"{of} sends {name!r} without noise, which is for the model alone"
            raise setting_error(
                "dp.clipping", settings[DPSettings].clipping, why, "setting-breaks-privacy"
            )

    @classmethod
    def fits(cls, settings: RunConfig, model: nn.Module) -> None:
        """Refuse batch norm, whose statistics would leave without noise."""
        if any(True for _ in model.buffers()):
            clipping = settings[DPSettings].clipping
            why = f"dp.clipping = {clipping!r} adds no noise to batch norm: choose one without"
            raise setting_error("model", settings.model, why, "setting-breaks-privacy")

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """Where updates are clipped."""
        return settings[DPSettings].clipping != "none"
