"""Heads in closed form: the server asks clients for sums, and makes the last layer of them.

The sums are :class:`fedul_flwr.learning.closed_form.SoftSums`. First they are of what is stated of
points, labels or class shares of sets; a refinement sums again by posteriors of the model with the
head so far. With secure sums they travel in fixed point under masks, else each client's are seen.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from logging import WARNING
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord
from flwr.common import log
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedul_flwr.arrays import Arrays, Floats, Ints
from fedul_flwr.config.base import AUTO, setting_error
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import HeadSettings
from fedul_flwr.data.class_priors import floored, uniform_prior
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.split import label_scenario
from fedul_flwr.data.types import Content, Inputs, InputShape, Value, count, numbers
from fedul_flwr.errors import BadMessageError, NothingToLearnError, TooFewLeftError, UserError
from fedul_flwr.federated import owner_offsets
from fedul_flwr.federated.members import ClientRegistry
from fedul_flwr.federated.messages import (
    HEAD,
    HEAD_SCALE,
    OF,
    PRIOR,
    SUMS,
    to_arrays,
    to_record,
)
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.owner.ledger import spender
from fedul_flwr.federated.owner.model_check import check_body
from fedul_flwr.federated.payload import Declared, Sum, all_of
from fedul_flwr.federated.stage import ClientStage, RoundAtServer, ServerStage, Stage, of_all
from fedul_flwr.learning.closed_form import (
    MOST_FEATURES,
    Gaussians,
    SoftSums,
    balanced,
    condition,
    default_shrinkage,
    fit_gaussians,
    head_of_spectrum,
    posteriors_by_em,
    shrunk_spectrum,
    soft_sums,
    sums_size,
)
from fedul_flwr.secure.messages import checked_array
from fedul_flwr.secure.noise import fresh_gaussians, gaussian_sigma
from fedul_flwr.secure.session import FEWEST
from fedul_flwr.secure.words import FIXED_BITS, IN_TWO_PARTS

if TYPE_CHECKING:
    from torch import nn

    from fedul_flwr.learning.plan import LocalPlan

COARSEST = 1e4
"""Fewest steps of a masked sum in the sum of a feature's squares about its class means."""


LARGE_CONDITION, MOST_CONDITION = 1e3, 1e5
"""Conditions of class shares with which classes are told apart badly, and like by chance: digits
of which 10 % are wrong with a condition of 15 have 50 % and 85 %."""
_HARDLY_APART = (
    "Round %s: the class shares of all sets together hardly tell the classes apart (condition "
    "%.2g), no better than %.0f labels would: sets that differ more in their classes would help."
)

HEADS = ("head", "refined-head", "twice-refined-head")
"""Names of the sums of a round: by what is stated of points, by posteriors, and again."""


def _turn(round_number: int) -> str:
    """The sums of a round in which nothing is trained."""
    return HEADS[min(round_number, len(HEADS)) - 1]


def client_sums(client: Any, content: Content) -> Floats:
    """The sums of a :class:`fedul_flwr.federated.client.Client` for a head, flat."""
    settings = client.settings
    number, updates = count(content, "server-round"), find_method(settings.method).updates
    of = content.values.get(OF)
    if not settings.makes_heads or of not in (HEADS if updates else [_turn(number)]):
        raise UserError(
            f"The server asked for sums of points that round {number} does not have.",
            "server-asks-too-much",
        )
    prior = numbers(content, PRIOR)
    if len(prior) != client.num_classes or (prior < 0).any():
        raise UserError("The server sent no class priors for a head.", "message-form")
    points, stated = client.point_shares(), of == HEADS[0]
    chosen = points.stated if stated else points.shares.any(axis=1)
    shares = points.shares[chosen]
    features, logits = features_of(client, content.arrays, points.inputs, points.points[chosen])
    # With noise a point's soft label must not depend on other points.
    alone = settings[HeadSettings].epsilon > 0
    soft = shares
    if not stated:
        soft = points.posteriors(logits, prior, chosen, alone=alone)
    rest = ~points.stated[chosen]
    if rest.any() and not alone:
        counts = shares[~rest].sum(axis=0)
        soft[rest] = posteriors_by_em(logits[rest], counts, prior, features.shape[-1])
    if not alone:
        return soft_sums(features, soft, stated=stated).flat()
    noise = HeadNoise(settings)
    spender(client.node)("sums for heads", noise.mu_squared)
    return noise.add(features, soft, stated=stated)


def features_of(
    client: Any, arrays: Arrays, inputs: Inputs, points: Ints
) -> tuple[NDArray[np.float32], Floats]:
    """Features ``(n, V, d)`` of a client's points and views of them, and logits ``(n, K)``, by a
    model from the server.

    All heads of a run that trains nothing are of the same features, which stay in memory.
    """
    from fedul_flwr.learning.local import features_of_views, load_arrays

    weight, bias = head_names(client.settings, client.data.model_shape, client.num_classes)
    arrays, reference = owner_offsets.taken_out(client, arrays, weight)
    try:
        load_arrays(client.model, arrays)
    except ValueError as error:
        raise UserError(f"The server's model is another one: {error}.", "model-mismatch") from None
    check_body(client, arrays, (weight, bias))
    rng = stream(client.settings.seed, "views", client.node.partition_id)  # the same in each sum
    plan = sums_plan(client.settings)

    def features() -> NDArray[np.float32]:
        return features_of_views(client.model, inputs, points, plan, rng)

    if find_method(client.settings.method).updates or len(inputs.shape) == 2:
        computed = features()
    else:
        body = (arrays[name] for name in sorted(arrays.keys() - {weight, bias}))
        views = plan.augment, client.settings.seed, client.node.partition_id
        computed = _recent.of(features, repr(views), inputs[points], *body)
    if reference is not None:
        computed = owner_offsets.less_offset(client, reference, computed, points)
    logits = computed[:, 0].astype(np.float64) @ arrays[weight].T.astype(np.float64) + arrays[bias]
    return computed, logits


class RecentArrays:
    """Results of the last calls, by all that they depend on; the oldest go beyond a size."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._arrays: OrderedDict[bytes, NDArray[Any]] = OrderedDict()

    def of(self, compute: Callable[[], NDArray[Any]], *parts: str | NDArray[Any]) -> NDArray[Any]:
        """``compute()``, or what it gave for the same parts before, which nobody may write to."""
        digest = sha256()
        for part in parts:
            form = part if isinstance(part, str) else f"{part.dtype} {part.shape}"
            digest.update(form.encode())
            if not isinstance(part, str):
                digest.update(np.ascontiguousarray(part).data)
        key = digest.digest()
        if key not in self._arrays:
            made = compute()
            made.flags.writeable = False
            self._arrays[key] = made
        self._arrays.move_to_end(key)
        result = self._arrays[key]
        while sum(array.nbytes for array in self._arrays.values()) > self._most_bytes:
            self._arrays.popitem(last=False)
        return result


_recent = RecentArrays(128 * 2**20)
"""Features of clients that this process answers for."""


def sums_plan(settings: RunConfig) -> LocalPlan:
    """How features are computed for sums: of views, too, where no network has learned of them."""
    from fedul_flwr.learning.plan import local_plan

    plan = local_plan(settings)
    return replace(plan, augment="none") if find_method(settings.method).updates else plan


class HeadNoise:
    """Noise on a client's sums, with which those of a whole run are differentially private.

    Of features in the unit ball, one point more changes Σ r rᵀ, Σ r xᵀ and the triangle of Σ x xᵀ
    by 1 each at most, together by √3. The noise is that of the analytic Gaussian mechanism; each
    client adds such a part that those of three, the fewest in a masked sum, are enough.
    """

    SENSITIVITY = math.sqrt(3)

    def __init__(self, settings: RunConfig) -> None:
        options = settings[HeadSettings]
        self._norm = options.feature_norm
        self.sigma = gaussian_sigma(
            options.epsilon, options.delta, self.SENSITIVITY, 1 + options.refinements
        )
        self.part = self.sigma / math.sqrt(FEWEST)

    @property
    def mu_squared(self) -> float:
        """μ² of one release (Dong, Roth and Su 2022)."""
        return (self.SENSITIVITY / self.sigma) ** 2

    def add(self, features: NDArray[Any], soft: Floats, *, stated: bool) -> Floats:
        """A client's sums, flat, of features cut to the norm, with its part of the noise."""
        x = np.asarray(features, np.float64) / self._norm
        x /= np.maximum(1, np.linalg.norm(x, axis=-1, keepdims=True))
        flat = soft_sums(x, soft, stated=stated).flat()
        flat[:, 1] += self.part * fresh_gaussians(len(flat))
        sums = SoftSums.of_flat(flat, soft.shape[1], x.shape[-1]).about(np.zeros(x.shape[-1]))
        scaled = SoftSums(sums.gram, sums.sums * self._norm, sums.second * self._norm**2)
        return scaled.flat()


def check_sums(client: str, arrays: Arrays, classes: int, features: int, most: int) -> None:
    """Refuse an answer that cannot be sums of a client's points.

    Parameters
    ----------
    most : its number of points.
    """
    size = (sums_size(classes, features), 2)
    parts = checked_array(f"{client} sent for a head", arrays, SUMS, np.float64, size)
    flat = parts.sum(axis=1)
    if not np.isfinite(flat).all():
        raise BadMessageError("its sums are not finite", "message-out-of-range")
    # A diagonal entry of a triangle is the first of its row.
    rows = np.arange(features)
    squares = flat[size[0] - sums_size(0, features) + rows * features - rows * (rows - 1) // 2]
    of_classes = SoftSums.of_flat(parts[: sums_size(classes, 0)], classes, 0)
    slack = 1e-6 * (1 + most)
    if of_classes.num_points > most + slack or (of_classes.masses < -slack).any():
        raise BadMessageError("its sums are not those of its points", "message-contradicts")
    if (squares < 0).any() or (np.diag(of_classes.gram) < -slack).any():
        raise BadMessageError("its sums have negative squares", "message-out-of-range")


def check_total(sums: SoftSums, announced: int, clients: int) -> None:
    """Refuse sums over clients that no points can have.

    There are no more points than clients have announced, and the sums of squares of classes and
    features together are positive semidefinite: [[A, B], [Bᵀ, Q]] is Σ (r, x) (r, x)ᵀ, and where r
    depends on x, with a larger A.

    Parameters
    ----------
    announced : number of points of all clients in the sum.
    clients : their number.

    Raises
    ------
    UserError
        If one of them has sent what is not of its points; nobody can see which.
    """
    rounding = clients * 2.0**-FIXED_BITS
    whole = np.block([[sums.gram, sums.sums], [sums.sums.T, sums.second]])
    slack = rounding * len(whole) + 1e-9 * abs(float(np.trace(whole)))
    has_points = sums.num_points <= announced + rounding * len(whole) + 1e-6 * announced
    try:
        np.linalg.cholesky(whole + slack * np.eye(len(whole)))
        is_square = True
    except np.linalg.LinAlgError:
        is_square = False
    if not (np.isfinite(whole).all() and has_points and is_square):
        raise UserError(
            f"The sums of {clients} clients together are not those of their {announced} points: "
            "one of them has sent others. A sum does not show which.",
            "sum-wrong",
        )


def _spread(weight: NDArray[Any]) -> float:
    """L2 norm of a last layer's weight, of which a shift that all classes share does not count."""
    return float(np.linalg.norm(weight - weight.mean(axis=0)))


class MadeOf(NamedTuple):
    """Of what a head was made: classes, A of the sums, class priors, how far the covariance was
    shrunk and its :func:`~fedul_flwr.learning.closed_form.shrunk_spectrum`, the name of the sums,
    and weight and bias of the head before."""

    gaussians: Gaussians
    gram: Floats
    prior: Floats
    part: float
    spectrum: tuple[Floats, Floats]
    turn: str
    before: list[NDArray[Any]]


class Made(NamedTuple):
    """A model with a new head, the class priors that it is for, numbers about the sums, and how
    many clients are in them."""

    model: Arrays
    prior: Floats
    about: dict[str, float]
    clients: int


def _require_scale(covariance: Floats, points: float) -> None:
    """Refuse features that differ too little for the steps of a masked sum."""
    deviation = math.sqrt(max(0.0, float(np.diag(covariance).mean())))
    if deviation**2 * points < COARSEST * 2.0**-FIXED_BITS:
        raise UserError(
            f"Features differ by {deviation:.1g} within classes, too little for a secure sum: "
            "scale points or features, or set closed-form.sum = 'plaintext'.",
            "message-out-of-range",
        )


def too_few(error: TooFewLeftError) -> UserError:
    """The refusal of a sum that too few clients are in."""
    why = f"{error} With 'plaintext' the server reads each client's sums"
    return setting_error("closed-form.sum", "masked", why, "too-few-clients")


def asks_clients(settings: RunConfig) -> bool:
    """Whether clients can say anything of their points' classes."""
    asks = find_method(settings.method).asks_clients
    return asks and label_scenario(settings) != "server"


def last_layer(settings: RunConfig, shape: InputShape, num_classes: int) -> tuple[str, nn.Linear]:
    """The last linear layer of a run's model, whose weight is an array, and the weight's name."""
    from fedul_flwr.models.parts import feature_layer
    from fedul_flwr.models.registry import build_model

    model = build_model(settings.model, shape, num_classes, options=settings.model_options)
    layer = feature_layer(model)
    name = next(name for name, module in model.named_modules() if module is layer)
    if f"{name}.weight" not in dict(model.named_parameters()):
        why = f"method {settings.method!r} sets the last layer, whose weight is normalized there"
        raise setting_error("model", settings.model, why, "model-unfit")
    return f"{name}.weight", layer


def head_names(settings: RunConfig, shape: InputShape, num_classes: int) -> tuple[str, str]:
    """Names of the last layer's weight and bias."""
    name, layer = last_layer(settings, shape, num_classes)
    problem = ""
    if layer.bias is None:
        problem = "a last layer without biases"
    elif layer.in_features > MOST_FEATURES:
        problem = f"{layer.in_features:,} features, and sums are of {MOST_FEATURES:,} at most"
    if problem:
        why = f"it has {problem}, and no head in closed form"
        raise setting_error("model", settings.model, why, "model-unfit")
    return name, f"{name.removesuffix('weight')}bias"


class AtServer(ServerStage):
    """Makes the last layer of a run's models from sums over its clients."""

    def __init__(self, strategy: Any) -> None:
        super().__init__(strategy)
        settings, registry = self.settings, strategy.registry
        self._registry: ClientRegistry = registry
        self._options, self._method = settings[HeadSettings], find_method(settings.method)
        every = self._options.every
        self._every = strategy.head_every if every == AUTO else every
        self._names = head_names(settings, registry.model_shape, registry.num_classes)
        self._scale: float | None = None
        self.last: MadeOf | None = None
        """Of what the last head was made."""

    def begin(self, round: RoundAtServer) -> None:
        """Make the round's model, where nothing is trained in it."""
        self._scale = None
        if self.is_alone(round.number):
            if asks_clients(self.settings):
                self.strategy.registration.update(round.grid)
            round.made = self._with_head(round)

    def ready(self, round: RoundAtServer) -> None:
        """Make a new head, with which the clients begin."""
        if self.precedes(round.number):
            round.model = self._with_head(round)

    def config(self) -> Mapping[str, Value]:
        """What the head before this round was multiplied by."""
        return {} if self._scale is None else {HEAD_SCALE: self._scale}

    @property
    def test_prior(self) -> Floats | None:
        """The class priors that the last head is for, which follow from its sums."""
        prior: Floats | None = self.state.get("prior")
        return prior

    def _with_head(self, round: RoundAtServer) -> ArrayRecord:
        strategy = self.strategy
        prior, from_sums = strategy.test_prior, self.settings.test_prior == "sets"
        if prior is None and not from_sums:
            prior = uniform_prior(strategy.num_classes)
        made = self.renew(round.grid, to_arrays(round.model), prior, round.number)
        record = strategy.record
        record.clients = max(record.clients, made.clients)
        record.sampled = max(record.sampled, made.clients)
        record.reported |= made.about
        self._scale = made.about.get(HEAD_SCALE)
        self.state["prior"] = made.prior
        return to_record(made.model)

    def is_alone(self, round_number: int) -> bool:
        """Whether a round makes a head and trains nothing."""
        return not self._method.updates or round_number == self.settings.num_rounds

    def precedes(self, round_number: int) -> bool:
        """Whether a round of training begins with a new head."""
        every = self._every
        return every > 0 and round_number > 1 and (round_number - 1) % every == 0

    def about(self) -> Mapping[str, Any]:
        """What is known of the privacy of sums; empty without noise."""
        if not self._options.epsilon:
            return {}
        return {
            "epsilon": self._options.epsilon,
            "delta": self._options.delta,
            "releases": 1 + self._options.refinements,
            "budget_exhausted": False,
            "epsilon_covers": "one point of one client, in all sums for heads",
        }

    def turns(self, round_number: int) -> Sequence[str]:
        """The sums of a round: where nothing is trained, one in each."""
        if not self._method.updates:
            return [_turn(round_number)]
        if self._method.data in ("labels", "fully-labeled"):
            return HEADS[:1]  # posteriors among given labels are these
        return HEADS[: 1 + self._options.refinements]

    def renew(self, grid: Grid, model: Arrays, prior: Floats | None, round_number: int) -> Made:
        """The model with a new head.

        Where training follows, the head is scaled to the norm of the one before, and is less sure:
        the logits of a linear discriminant are larger than those of a network in training, whose
        steps they would make many times too long.

        Parameters
        ----------
        prior : ``(K,)``, class priors at test time; ``None`` takes those of the sums.
        """
        about: dict[str, float] = {}
        clients, before, weight = 0, model, self._names[0]
        for turn in self.turns(round_number):
            sums, clients = self._collect(grid, model, prior, turn, round_number)
            about["head-points"], gaussians = sums.num_points, fit_gaussians(sums)
            if turn == HEADS[0]:
                about["head-condition"] = condition(sums.gram)
                number = condition(balanced(sums.gram))
                if not number <= MOST_CONDITION:
                    raise UserError(
                        "The class shares of all sets together do not tell the classes apart "
                        f"(condition {number:.2g}, at most {MOST_CONDITION:.0e}), and no head "
                        "follows from them: sets have to differ more.",
                        "priors-rank",
                    )
                if number > LARGE_CONDITION:
                    log(WARNING, _HARDLY_APART, round_number, number, gaussians.effective)
            if prior is None:
                prior = floored(sums.masses)
            if self.settings.sums_heads:
                _require_scale(gaussians.covariance, sums.num_points)
            if self._method.head:
                values = self._method.head(sums, clients, prior, self.settings)
            else:
                stated = self._options.shrinkage
                part = default_shrinkage(gaussians) if stated == AUTO else stated
                spectrum = shrunk_spectrum(gaussians, part)
                values = head_of_spectrum(gaussians, prior, spectrum)
                head = [model[name] for name in self._names]
                self.last = MadeOf(gaussians, sums.gram, prior, part, spectrum, turn, head)
            made = {
                name: np.asarray(value, model[name].dtype)
                for name, value in zip(self._names, values, strict=True)
            }
            model = {**model, **made}
        assert prior is not None  # there is a turn
        if not self.is_alone(round_number):
            made_spread = _spread(model[weight]) or 1.0  # 0 if features tell no classes apart
            about[HEAD_SCALE] = scale = _spread(before[weight]) / made_spread
            model |= {name: (model[name] * scale).astype(model[name].dtype) for name in self._names}
        return Made(model, prior, about, clients)

    def _collect(
        self,
        grid: Grid,
        model: Arrays,
        prior: Floats | None,
        turn: str,
        round_number: int,
    ) -> tuple[SoftSums, int]:
        """Sums over all clients and the server, and how many clients are in them."""
        classes, features = model[self._names[0]].shape
        stated = uniform_prior(classes) if prior is None else prior
        values: dict[str, Any] = {PRIOR: stated.tolist(), "server-round": round_number}
        parts: list[SoftSums] = []
        number = 0
        clients = (
            self._registry.present(self._registry.clients) if asks_clients(self.settings) else []
        )
        if clients and self.settings.sums_heads:
            try:
                collect = self.strategy.sums.collect
                size = sums_size(classes, features)
                sent = {**model, **owner_offsets.beside(self.strategy)}
                total, left = collect(grid, turn, clients, size, sent, values)
            except TooFewLeftError as error:
                raise too_few(error) from error
            number = len(left)
            announced = sum(map(self._registry.points, left))
            parts = [SoftSums.of_flat(total, classes, features)]
            if not self.settings[HeadSettings].epsilon:  # noise may say anything
                check_total(parts[0], announced, number)
        elif clients:
            content = Content(model, {**values, OF: turn})

            def check(client: ClientRef, answer: Content) -> None:
                most = self._registry.points(client.partition_id)
                check_sums(str(client), answer.arrays, classes, features, most)

            answers = self._registry.query(grid, HEAD, dict.fromkeys(clients, content), check)
            for answer in answers.values():
                parts.append(SoftSums.of_flat(answer.arrays[SUMS], classes, features))
            number = len(answers)
        if (trainer := self.strategy.trainer) is not None:
            parts.append(trainer.soft_sums(model))
        if not any(part.num_points > 0 for part in parts):
            raise NothingToLearnError(
                f"Round {round_number}: nobody has a label or a set, of which a head follows."
            )
        return SoftSums.total(parts), number


class AtClient(ClientStage):
    """Sums over its points."""

    phases, in_sums = frozenset({HEAD}), False

    def answer(self, name: str, content: Content) -> Content:
        """Sums for the server alone, where the run allows that."""
        del name
        if self.settings.sums_heads:
            raise of_all("its sums")
        return Content(arrays={SUMS: client_sums(self.client, content)})

    def part(self, of: str, content: Content) -> Floats | None:
        """Sums of which the server reads those over all clients."""
        return client_sums(self.client, content) if of in HEADS else None


_SAYS = "sums over its points (of features by class, of products of two features, of classes)"
_OFTEN = "every message for a head"


class Heads(Stage):
    """Last layers follow from sums over clients (``head = "closed-form"`` and methods of it)."""

    server, client = AtServer, AtClient

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """With settings of heads."""
        return settings.makes_heads

    @classmethod
    def validate(cls, settings: RunConfig) -> None:
        """Refuse views of somebody's own where what one point adds is to be bounded."""
        if ":" in settings.augment and settings[HeadSettings].epsilon:
            why = "with closed-form.epsilon a view must follow from its point alone"
            raise setting_error("augment", settings.augment, why, "setting-breaks-privacy")

    @classmethod
    def sends(cls, settings: RunConfig) -> Declared:
        """The sums."""
        return {} if settings.sums_heads else {HEAD: all_of(_SAYS, SUMS, often=_OFTEN)}

    @classmethod
    def sums(cls, settings: RunConfig) -> Mapping[str, Sum]:
        """Sums in fixed point."""
        if not settings.sums_heads:
            return {}
        beside = owner_offsets.arrays_of(settings)
        first = Sum.of(_SAYS, _OFTEN, encoding=IN_TWO_PARTS, beside=beside)
        again = replace(first, undisturbed=False)  # not in every run
        return {HEADS[0]: first, **dict.fromkeys(HEADS[1:], again)}

    @classmethod
    def unprotected(cls, settings: RunConfig) -> Iterator[str]:
        """Whose sums the server reads."""
        if settings.sums_heads:
            yield (
                "The server gets sums over all owners' points: of their features by class, and of "
                "products of two features."
            )
        else:
            yield (
                "The server gets sums over each owner's points by itself: of their features by "
                "class, and of products of two features. Of few points they tell the points."
            )
