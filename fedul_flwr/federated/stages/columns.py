"""Means and scales of columns over all clients' points (``standardize = "federation"``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from logging import WARNING
from typing import Any, cast

import numpy as np
from flwr.common import log
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.config.base import setting_error
from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.agreement import (
    MOST_COLUMNS,
    category_pairs,
    column_counts,
    in_place_of_rare,
    packed,
    packed_size,
    swapped,
    unpacked,
)
from fedul_flwr.data.columns import Columns, parse_columns, unnamed_columns
from fedul_flwr.data.exact_sums import DIGITS, exact_sums, moments_of
from fedul_flwr.data.standardize import (
    MEANS,
    SCALES,
    VARIANCES,
    Moments,
    ScaledInputs,
    Scaling,
    moments,
    pooled,
    scaling_by,
)
from fedul_flwr.data.types import Content, Inputs, Value, count, numbers
from fedul_flwr.errors import BadMessageError, TooFewLeftError
from fedul_flwr.federated.client_data import ClientData
from fedul_flwr.federated.messages import COLUMNS, NUM_POINTS, SETUP
from fedul_flwr.federated.payload import ONCE, Declared, Sum, all_of
from fedul_flwr.federated.stage import ClientStage, ServerStage, Stage
from fedul_flwr.federated.stages.agreement import COUNTS, tell_owner
from fedul_flwr.federated.sums.vector import fewest_summed
from fedul_flwr.secure.words import whole

OF_COLUMNS = "columns"
"""Name of the sum of columns."""
MOMENTS = "moments"
"""Array ``(2, w)``: means and variances of columns, medians and products, of all clients."""


def counts_columns(settings: RunConfig, width: int) -> bool:
    """Whether owners count over a grid: columns that people have named, or could have."""
    return settings.standardize_sum == "masked" and not settings.features and width <= MOST_COLUMNS


def received_scaling(content: Content, setup: Mapping[str, Value]) -> dict[str, Value]:
    """Means and scales of the columns of all clients together, as a client stores them."""
    shape = cast(list[int], setup["model-shape"])
    scaling = {key: numbers(content, key) for key in (MEANS, SCALES)}
    if any(len(values) != shape[0] for values in scaling.values()) or (scaling[SCALES] <= 0).any():
        raise BadMessageError(
            f"Phase 'columns' came without a mean and a positive scale for {shape[0]} columns.",
            "message-form",
        )
    return {key: cast(list[float], values.tolist()) for key, values in scaling.items()}


def client_rows(data: ClientData) -> tuple[Inputs, Ints]:
    """The client's points as they are, not standardized: an array, and rows of it."""
    inputs, points = data.own_rows
    return inputs.raw if isinstance(inputs, ScaledInputs) else inputs, points


def raw_rows(data: ClientData) -> tuple[Inputs, Ints]:
    """The same, with the medians that owners pool and products of :func:`summed_pairs`."""
    raw, points = client_rows(data)
    width, columns = raw.shape[1], data.table.columns
    places = median_places(data.settings, columns, width)
    pairs = summed_pairs(data.settings, columns, width)
    if not places and not len(pairs):
        return raw, points
    rows = raw[points] if len(points) else np.zeros((1, width), np.float32)
    medians = np.median(rows[:, places], axis=0).astype(np.float32)
    means = in_place_of_rare(np.asarray(rows, np.float64), columns, pairs)
    return cast(Inputs, _More(raw, medians, pairs, means)), points


@dataclass(frozen=True)
class _More:
    """Vectors ``(n, d)`` followed by ``(m,)`` numbers in each row and products of ``(p, 2)``, of
    which ``means`` ``(p,)`` take a number's place unless they are NaN."""

    raw: Inputs
    medians: NDArray[np.float32]
    pairs: Ints
    means: Floats

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.raw), self.raw.shape[1] + len(self.medians) + len(self.pairs)

    def __getitem__(self, rows: Ints) -> NDArray[np.float32]:
        taken = self.raw[rows]
        numbers = np.where(np.isnan(self.means), taken[:, self.pairs[:, 1]], self.means)
        products = (taken[:, self.pairs[:, 0]] * numbers).astype(np.float32)
        return np.hstack([taken, np.tile(self.medians, (len(taken), 1)), products])


def summed_pairs(settings: RunConfig, columns: Columns | None, width: int) -> Ints:
    """Pairs of features of which products are summed, ``(p, 2)``: where columns are counted."""
    return category_pairs(columns if counts_columns(settings, width) else None)


def median_places(settings: RunConfig, columns: Columns | None, width: int) -> list[int]:
    """Features whose medians owners pool: numbers that nothing else fills in predictions."""
    if settings.missing != "median" or settings.features:
        return []
    return (columns or unnamed_columns(width)).unfilled


UNPROTECTED = (
    "standardize-sum = 'plaintext': the server sees mean and variance of each client's columns, "
    "which xclp.secure does not encrypt; 'masked' hides them."
)

LARGEST = float(np.finfo(np.float32).max)
"""Largest number of a point."""


def check_moments(answer: Content, width: int) -> None:
    """Refuse an answer without valid means and variances of ``width`` columns.

    Points are float32 numbers, so no mean is beyond :data:`LARGEST` and no variance beyond its
    square; larger ones would make every standardized number 0.
    """
    for key, least, largest in ((MEANS, -LARGEST, LARGEST), (VARIANCES, 0, LARGEST**2)):
        values = numbers(answer, key)
        if len(values) != width or not ((least <= values) & (values <= largest)).all():
            raise BadMessageError(
                f"A message came with {key} that are not those of {width} columns.",
                "message-out-of-range",
            )


def scaling_values(scaling: Scaling) -> dict[str, Value]:
    """The scaling as values of a message."""
    return {
        MEANS: cast(list[float], scaling.means.tolist()),
        SCALES: cast(list[float], scaling.scales.tolist()),
    }


class AtClient(ClientStage):
    """Tells its moments, and stores those of all."""

    phases = frozenset({COLUMNS})

    def register(self) -> dict[str, Value]:
        """Its moments, if the server pools them in plaintext."""
        if self.settings.standardize_sum != "plaintext":
            return {}
        of = moments(*raw_rows(self.client.data))
        return {MEANS: of.means.tolist(), VARIANCES: of.variances.tolist()}

    def answer(self, name: str, content: Content) -> Content:
        """Store the scaling by all points."""
        del name
        client = self.client
        scaling = received_scaling(content, client.setup)
        client.state.set_values(SETUP, {**client.setup, **scaling})
        if COUNTS in content.arrays:
            columns = client.data.table.columns
            tell_owner(client, self._counts(), content, columns, self._swapped(content, columns))
        return Content()

    def _swapped(self, content: Content, columns: Columns | None) -> Iterator[str]:
        """Categories that go with other numbers here than elsewhere."""
        inputs, points = raw_rows(self.client.data)
        everybody = content.arrays.get(MOMENTS)
        if columns is None or everybody is None or everybody.shape != (2, inputs.shape[1]):
            return
        medians = median_places(self.settings, columns, len(columns.features))
        at = np.delete(np.arange(inputs.shape[1]), len(columns.features) + np.arange(len(medians)))
        mine, total = moments(inputs, points), int(content.arrays[COUNTS][0].sum())
        parts = [Moments(m[at], v[at]) for m, v in (mine, everybody)]
        yield from swapped(parts[0], len(points), parts[1], total, columns)

    def _counts(self) -> Ints:
        inputs, points = client_rows(self.client.data)
        return column_counts(np.asarray(inputs[points]))

    def part(self, of: str, content: Content) -> Sequence[int] | None:
        """Exact sums of its columns."""
        del content
        if of != OF_COLUMNS or self.settings.standardize_sum != "masked":
            return None
        sums, width = exact_sums(*raw_rows(self.client.data)), self.client.data.model_shape[0]
        return sums + packed(self._counts()) if counts_columns(self.settings, width) else sums


class AtServer(ServerStage):
    """Asks the clients for their columns once, and tells them the scaling by all points.

    Attributes
    ----------
    on_scaling : called with the scaling once it is known, and the moments that it comes from.
    """

    def __init__(self, strategy: Any) -> None:
        super().__init__(strategy)
        self._registry, self._setup = strategy.registry, strategy.registry.setup
        self.on_scaling: Callable[[Scaling, Moments], None] = lambda *_: None
        self._counted: Ints | None = None

    def admit(self, answer: Content) -> None:
        """Refuse means and variances that are not valid."""
        if self.settings.standardize_sum == "plaintext":
            check_moments(answer, self._pooled_width)

    def open(self, grid: Grid) -> None:
        """Register the clients, pool their columns, and tell all of them, if it is not known."""
        if MEANS in self._setup.values:
            return
        if not self._registry.clients:
            self.strategy.registration.register_all(grid)
        if self.settings.standardize_sum == "masked":
            whole = self._masked_sum(grid)
        else:
            codes = self.settings.find(XCLPSettings)
            if codes and codes.secure != "plaintext":
                log(WARNING, UNPROTECTED)
            answers = [answer for _, answer in sorted(self._registry.answers.items())]
            answers = [answer for answer in answers if count(answer, NUM_POINTS)]
            parts = [Moments(numbers(a, MEANS), numbers(a, VARIANCES)) for a in answers]
            whole = pooled([count(answer, NUM_POINTS) for answer in answers], parts)
        of_columns = Moments(*(values[: self._width] for values in whole))
        scaling = scaling_by(of_columns, self._columns)
        values = scaling_values(scaling)
        self._setup.values |= values
        self.on_scaling(scaling, whole)
        arrays = {} if self._counted is None else {COUNTS: self._counted, MOMENTS: np.stack(whole)}
        contents = {client: Content(arrays, values) for client in self._registry.clients}
        self._registry.query(grid, COLUMNS, contents)

    def _masked_sum(self, grid: Grid) -> Moments:
        """Moments of all points together, of which no client shows its part."""
        points = {client: self._registry.points(client) for client in self._registry.answers}
        members = [client for client in self._registry.clients if points[client.partition_id]]
        fewest = fewest_summed(self.settings)
        try:
            if len(members) < fewest:
                raise TooFewLeftError(
                    f"{len(members)} client(s) have points, and fewer than {fewest} cannot hide "
                    "their columns from each other."
                )
            size, width = 2 * self._pooled_width, self._width
            counts = counts_columns(self.settings, width)
            more = packed_size(width) if counts else 0
            sums, left = self.strategy.sums.collect(grid, OF_COLUMNS, members, size + more)
            self._counted = unpacked(sums[size:], width) if counts else None
        except TooFewLeftError as error:
            why = f"{error} Choose standardize = 'owner' or 'constants'"
            raise setting_error("standardize-sum", "masked", why, "too-few-clients") from error
        return moments_of(sum(points[client] for client in left), sums[:size])

    @property
    def _width(self) -> int:
        return int(self._registry.model_shape[0])

    @property
    def _pooled_width(self) -> int:
        """Number of columns, medians and products."""
        width, columns = self._width, self._columns
        more = median_places(self.settings, columns, width)
        return width + len(more) + len(summed_pairs(self.settings, columns, width))

    @property
    def _columns(self) -> Columns | None:
        """Columns of the vectors that models take; features of an extractor have none."""
        described = self._setup.values.get("columns")
        has_columns = described and not self.settings.features
        return parse_columns(str(described)) if has_columns else None


class ColumnScaling(Stage):
    """Vectors are standardized by the means and scales of all clients' points."""

    server, client = AtServer, AtClient

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """With ``standardize = "federation"``."""
        return settings.standardize == "federation"

    @classmethod
    def sends(cls, settings: RunConfig) -> Declared:
        """Moments of its columns, once."""
        if settings.standardize_sum == "masked":
            return {}
        says = (
            "mean and variance of every column of its points, and with missing = 'median' its "
            "median"
        )
        return {SETUP: all_of(says, MEANS, VARIANCES)}

    @classmethod
    def sums(cls, settings: RunConfig) -> Mapping[str, Sum]:
        """Exact sums of columns, once."""
        if settings.standardize_sum != "masked":
            return {}
        says = (
            "sums and sums of squares of every column of its points, and with missing = "
            "'median' its medians times its number of points; of up to 256 columns how many of its "
            "numbers are in each of 241 ranges, and sums of numbers by category"
        )
        return {OF_COLUMNS: Sum.of(says, ONCE, encoding=whole(DIGITS), once=True)}

    @classmethod
    def unprotected(cls, settings: RunConfig) -> Iterator[str]:
        """Moments."""
        alone = settings.standardize_sum == "plaintext"
        whose = "each owner's points" if alone else "all owners' points together"
        yield f"The server gets mean and variance of every column of {whose}."
