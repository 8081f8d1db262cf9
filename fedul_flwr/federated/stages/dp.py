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
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import FedAvg
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from numpy.typing import NDArray

from fedul_flwr.config.base import setting_error
from fedul_flwr.config.methods import METHODS, find_method, is_ours
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.federated.asked import Asked
from fedul_flwr.federated.combine import clip_update
from fedul_flwr.federated.grid import forwarded
from fedul_flwr.federated.messages import ARRAYS, PlainArray, Spool, array_record
from fedul_flwr.federated.payload import CONFIDENT, OF_ALL, Declared, in_run, reports_of
from fedul_flwr.federated.stage import ClientStage, ServerStage, Stage, stages_of
from fedul_flwr.secure.noise import fresh_gaussians, gaussian_epsilon

if TYPE_CHECKING:
    from torch import nn

COVERS = "all data of one client, in the models of all rounds; no other message or figure of it"
"""The data that epsilon covers."""
RELEASES, MU_SQUARED = "releases", "mu-squared"


class PrivateMean(FlowerStrategy):
    """A base behind clipping of updates and Gaussian noise on their mean (McMahan et al. 2018).

    One client moves the sum of clipped updates by C at most, and the noise on it has the standard
    deviation z·C: a Gaussian release with μ = 1/z. All releases together are exactly one with
    μ² = Σ 1/z² (Dong, Roth and Su 2022). Rounds compose as if every client took part in each: no
    amplification by sampling. If a sampled client returns no update, the round releases nothing:
    the model stays as it was, and no epsilon is spent.

    With secure sums the clients add the noise to their parts of the sum
    (:func:`fedul_flwr.federated.secure_sum.add_noise`): enough for a release that misses as
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
        then = gaussian_epsilon(math.sqrt(self.mu_squared + self._mu_squared_of_one), delta)
        if budget and then > budget:
            self.exhausted = True
            if self.releases:
                raise PrivacyBudgetExhausted(
                    f"Another release would spend epsilon = {then:.6g}, above {budget:g} "
                    f"({self.epsilon:.6g} is spent, delta {delta:g})."
                )
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
        self.mu_squared += self._mu_squared_of_one
        log(INFO, "Privacy spent: epsilon = %.6g, delta = %g", self.epsilon, self.settings.delta)
        if self.summed:
            return arrays, metrics
        deviation = self.settings.noise_multiplier * self.settings.norm / self._sampled
        return with_noise(arrays, deviation), metrics

    @property
    def _mu_squared_of_one(self) -> float:
        return self.settings.noise_multiplier**-2

    configure_evaluate = forwarded("base", "configure_evaluate")
    aggregate_evaluate = forwarded("base", "aggregate_evaluate")
    summary = forwarded("base", "summary")


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
    kind = method.client_class
    before: Declared = next(one for one in kind.__mro__ if is_ours(one)).answers
    theirs = {phase: parts for phase, parts in kind.answers.items() if parts != before.get(phase)}
    for of, messages in [*sent * bool(settings.stage), (f"method {settings.method!r}", theirs)]:
        for parts in messages.values():
            yield from ((of, name) for name in in_run(parts, settings))


class AtServer(ServerStage):
    """Says what was spent."""

    def about(self) -> dict[str, Any]:
        """Entries for the summary; refuses success for a run whose model never changed."""
        base: PrivateMean = self.strategy.base
        if not base.releases:
            why = "an update was missing in every round, so that the model has never changed"
            raise setting_error("dp.clipping", base.settings.clipping, why, "no-update")
        return base.spent


class AtClient(ClientStage):
    """Sends nothing without noise."""

    def check(self) -> None:
        """Refuse a run that asks for more than the model."""
        DifferentialPrivacy.validate(self.settings)

    def before(self, asked: Asked, shares: Mapping[str, Any]) -> None:
        """Refuse it also where the server has not."""
        del asked, shares
        self.check()


class DifferentialPrivacy(Stage):
    """Clipped updates with noise, of a :class:`PrivateMean`."""

    server, client = AtServer, AtClient

    @classmethod
    def validate(cls, settings: RunConfig) -> None:
        """Refuse what would leave without noise: all but the model and figures of training."""
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
