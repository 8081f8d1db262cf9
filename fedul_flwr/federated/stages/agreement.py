"""Whether each owner's images or columns are like all others', before round 1.

A masked sum of counts over a stated grid: each owner reads how its own data lie among all, and
nobody else does. Where means and scales of columns are summed under masks, the counts travel with
these (:mod:`fedul_flwr.federated.stages.columns`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from logging import WARNING
from typing import Any

import numpy as np
from flwr.common import log

from fedul_flwr.arrays import Ints
from fedul_flwr.config.base import setting_error
from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import HeadSettings
from fedul_flwr.data.agreement import (
    MOST_COLUMNS,
    TABLES,
    Words,
    column_counts,
    differences,
    packed,
    packed_size,
    unpacked,
)
from fedul_flwr.data.columns import Columns
from fedul_flwr.data.exact_sums import DIGITS
from fedul_flwr.data.standardize import ScaledInputs
from fedul_flwr.data.types import Content, InputShape
from fedul_flwr.errors import BadMessageError, TooFewLeftError, UserError
from fedul_flwr.federated.messages import AGREEMENT
from fedul_flwr.federated.payload import ONCE, Sum
from fedul_flwr.federated.stage import (
    ClientStage,
    RoundAtServer,
    ServerStage,
    Stage,
    stages_of,
    sums_of,
)
from fedul_flwr.secure.words import whole

COUNTS = "counts"
"""Array of all owners' counts, ``(d, BINS)``."""
_ASKED = "asked"


def tell_owner(
    client: Any,
    here: Ints,
    content: Content,
    columns: Columns | None,
    more: Iterable[str] = (),
    words: Words = TABLES,
) -> None:
    """Say on an owner's machine alone how its data differ from those of all others."""
    everybody = content.arrays.get(COUNTS)
    if everybody is None or everybody.shape != here.shape or everybody.dtype != np.int64:
        raise BadMessageError(f"A message came without counts {here.shape}.", "message-form")
    for line in (*differences(here, everybody, columns, words), *more):
        print(f"Client {client.node.partition_id}: warning: {line}")


class AtClient(ClientStage):
    """Counts, and compares."""

    phases = frozenset({AGREEMENT})

    def part(self, of: str, content: Content) -> Sequence[int] | None:
        """Its counts, which it stores: headers of all files are read once."""
        del content
        if of != AGREEMENT:
            return None
        data = self.client.data
        inputs, points = data.own_rows
        if len(data.input_shape) > 1:
            from fedul_flwr.data.image_facts import image_counts

            counts = image_counts(data.folder, inputs, points)
        else:
            raw = inputs.raw if isinstance(inputs, ScaledInputs) else inputs
            counts = column_counts(np.asarray(raw[points]))
        self.client.state.set_ephemeral(AGREEMENT, {COUNTS: counts})
        return packed(counts)

    def answer(self, name: str, content: Content) -> Content:
        """Take its counts away from those of all, and say what differs."""
        del name
        client = self.client
        stored = client.state.ephemeral(AGREEMENT)
        if not stored:
            raise UserError("The server sent counts that were not asked for.", "server-out-of-turn")
        columns, words = client.data.table.columns, TABLES
        if len(client.data.input_shape) > 1:
            from fedul_flwr.data.image_facts import IMAGES, WORDS

            columns, words = IMAGES, WORDS
        tell_owner(client, stored[COUNTS], content, columns, words=words)
        client.state.set_ephemeral(AGREEMENT, {})
        return Content()


class AtServer(ServerStage):
    """Asks for the sum once, and sends it back."""

    def begin(self, round: RoundAtServer) -> None:
        """Sum the counts of all clients before round 1."""
        if _ASKED in self.state:
            return
        strategy, registry = self.strategy, self.strategy.registry
        if not registry.clients:
            strategy.registration.register_all(round.grid)
        self.state[_ASKED] = np.array(1)
        width, clients = self._width, registry.present(registry.clients)
        try:
            size = packed_size(width)
            sums, left = strategy.sums.collect(round.grid, AGREEMENT, clients, size)
        except TooFewLeftError as error:
            log(WARNING, "Nobody learns whether owners' data are alike: %s", error)
            return
        strategy.on_summed()
        content = Content({COUNTS: unpacked(sums, width)})
        those = [client for client in clients if client.partition_id in left]
        registry.query(round.grid, AGREEMENT, dict.fromkeys(those, content))

    @property
    def _width(self) -> int:
        shape = self.strategy.registry.setup.values["input-shape"]
        if len(shape) > 1:
            from fedul_flwr.data.image_facts import IMAGES

            return len(IMAGES.features)
        return int(shape[0])


class Agreement(Stage):
    """Counts of images or columns, for each owner to see how its own lie among all."""

    server, client = AtServer, AtClient

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """With ``agreement = "on"``."""
        return settings.agreement == "on"

    @classmethod
    def sums(cls, settings: RunConfig) -> Mapping[str, Sum]:
        """Counts, once."""
        del settings
        says = (
            "how many of its images, or of the numbers of each column, are in each of 241 ranges: "
            "of images height, width, their ratio, pixel spacing, channels, form, brightness, "
            "contrast"
        )
        return {AGREEMENT: Sum.of(says, ONCE, encoding=whole(DIGITS), once=True)}

    @classmethod
    def unprotected(cls, settings: RunConfig) -> Iterator[str]:
        """Counts of all."""
        del settings
        yield (
            "The server and all owners get how many of all owners' images, or numbers of a column, "
            "are in each range of a grid (agreement)."
        )


def resolve_agreement(settings: RunConfig, input_shape: InputShape, *, own_data: bool) -> RunConfig:
    """Settings with ``agreement = "auto"`` replaced: ``on`` where owners' own data are in secure
    sums anyway, and nothing is promised to be noised."""
    chosen, why, code = settings.agreement, "", "setting-without-effect"
    heads, codes = settings.find(HeadSettings), settings.find(XCLPSettings)
    epsilons = [heads.epsilon if heads and settings.makes_heads else 0]
    epsilons += [codes.codes_epsilon if codes else 0]
    if not find_method(settings.method).asks_clients or settings.features:
        why = "no client has images or columns of names here"
    elif len(input_shape) == 0 or (len(input_shape) == 1 and input_shape[0] > MOST_COLUMNS):
        why = f"it is for images, and for tables of at most {MOST_COLUMNS} columns"
    elif settings.standardize == "federation" and settings.standardize_sum == "masked":
        why = "standardize-sum = 'masked' has these counts"
    elif any(stage.noises for stage in stages_of(settings)) or any(epsilons):
        why, code = "its counts have no noise", "setting-breaks-privacy"
    if chosen == "auto":
        is_on = own_data and not why and bool(sums_of(settings))
        chosen = "on" if is_on else "off"
    elif chosen == "on" and why:
        raise setting_error("agreement", "on", why, code)
    return settings.model_copy(update={"agreement": chosen})
