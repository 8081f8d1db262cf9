"""Filters that fit all clients' images, from one sum over small patches before round 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from fedul_flwr.arrays import Floats
from fedul_flwr.config.base import setting_error
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import HeadSettings
from fedul_flwr.config.shared import FITTED_MODEL
from fedul_flwr.data.types import Content
from fedul_flwr.errors import BadMessageError, NothingToLearnError, TooFewLeftError, UserError
from fedul_flwr.federated.messages import FILTERS, SUMS, to_arrays, to_record
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.payload import Declared, Sum, all_of
from fedul_flwr.federated.stage import ClientStage, RoundAtServer, ServerStage, Stage, of_all
from fedul_flwr.federated.stages.heads import asks_clients, too_few
from fedul_flwr.secure.messages import checked_array
from fedul_flwr.secure.words import FIXED


class AtServer(ServerStage):
    """Asks for the sum once, and sets the filters."""

    def begin(self, round: RoundAtServer) -> None:
        """Set the filters of a model that has none of a sum yet."""
        from fedul_flwr.learning.filters import names_in, with_moments

        arrays = to_arrays(round.model)
        names = names_in(arrays)
        assert names is not None  # as the rule of the model's name says
        if arrays[names[1]].any():
            return
        if FILTERS not in self.state:
            self.state[FILTERS] = self._collect(round, arrays[names[0]].shape)
            self.strategy.on_summed()
        round.model = to_record(with_moments(arrays, self.state[FILTERS]))

    def _collect(self, round: RoundAtServer, shape: tuple[int, ...]) -> Floats:
        from fedul_flwr.learning.filters import moments_of

        strategy, side = self.strategy, shape[2]
        registry, size = strategy.registry, int(np.prod(shape[1:]))
        total, most = np.zeros(1 + size * (size + 1) // 2), 0
        if asks_clients(self.settings):
            if not registry.clients:
                strategy.registration.register_all(round.grid)
            total, most = self._of_clients(round, size)
        if (trainer := strategy.trainer) is not None:
            of_server = trainer.patch_sums(side)
            total, most = total + of_server, most + int(of_server[0])
        if not total[1:].any():
            raise NothingToLearnError("Nobody has an image of two colors, of which filters follow.")
        try:
            return moments_of(total, most)
        except BadMessageError:
            raise UserError(
                "The sums of patches of all clients together are those of no images: one of them "
                "has sent others. A sum does not show which.",
                "sum-wrong",
            ) from None

    def _of_clients(self, round: RoundAtServer, size: int) -> tuple[Floats, int]:
        """Their sums together, and how many points they have."""
        registry, count = self.strategy.registry, 1 + size * (size + 1) // 2
        clients = registry.present(registry.clients)
        if self.settings.sums_heads:
            try:
                total, left = self.strategy.sums.collect(round.grid, FILTERS, clients, count)
            except TooFewLeftError as error:
                raise too_few(error) from error
            return total, sum(map(registry.points, left))

        def check(client: ClientRef, answer: Content) -> None:
            from fedul_flwr.learning.filters import moments_of

            what = f"{client} sent for filters"
            sums = checked_array(what, answer.arrays, SUMS, np.float64, (count,))
            if sums.any():
                moments_of(sums, registry.points(client.partition_id))

        answers = registry.query(round.grid, FILTERS, dict.fromkeys(clients, Content()), check)
        total = sum((answer.arrays[SUMS] for answer in answers.values()), np.zeros(count))
        return total, sum(map(registry.points, (client.partition_id for client in answers)))


class AtClient(ClientStage):
    """Sums over patches of its images."""

    phases, in_sums = frozenset({FILTERS}), False

    def answer(self, name: str, content: Content) -> Content:
        """Its sums for the server alone, where the run allows that."""
        del name, content
        if self.settings.sums_heads:
            raise of_all("its sums")
        return Content(arrays={SUMS: self._sums()})

    def part(self, of: str, content: Content) -> Floats | None:
        """Its sums."""
        del content
        return self._sums() if of == FILTERS else None

    def _sums(self) -> Floats:
        from fedul_flwr.learning.filters import patch_sums

        inputs, points = self.client.data.own_rows
        return patch_sums(inputs, points, self.client.model[0].filters.shape[2])


_SAYS = (
    "sums over small patches of its images, brightness and contrast taken out: how many images, "
    "and products of two pixels of a patch"
)
_OFTEN = "once, in round 1"


class Filters(Stage):
    """The filters of model ``whitened-filters`` follow from a sum."""

    server, client = AtServer, AtClient

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """With this model."""
        return settings.model == FITTED_MODEL

    @classmethod
    def validate(cls, settings: RunConfig) -> None:
        """Refuse it without a head from sums, and where all that clients send has noise."""
        if not settings.makes_heads:
            why = "its filters follow from a sum, as last layers do: choose head = 'closed-form'"
            raise setting_error("model", settings.model, why, "method-mismatch")
        if settings[HeadSettings].epsilon:
            why = "the sum that its filters follow from has no noise: choose 'random-features'"
            raise setting_error("model", settings.model, why, "setting-breaks-privacy")

    @classmethod
    def sends(cls, settings: RunConfig) -> Declared:
        """The sums."""
        return {} if settings.sums_heads else {FILTERS: all_of(_SAYS, SUMS, often=_OFTEN)}

    @classmethod
    def sums(cls, settings: RunConfig) -> Mapping[str, Sum]:
        """Sums in fixed point."""
        if not settings.sums_heads:
            return {}
        return {FILTERS: Sum.of(_SAYS, _OFTEN, encoding=FIXED, once=True)}

    @classmethod
    def unprotected(cls, settings: RunConfig) -> Iterator[str]:
        """What the server reads."""
        whose = "all owners' images together" if settings.sums_heads else "each owner's images"
        yield f"The server gets how two pixels of a small patch go together, of {whose}."
