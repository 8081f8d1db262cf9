"""Settings in a SuperNode's ``--node-config``: a client's number, its data, its owner's limits."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedul_flwr.config.base import Settings, setting_error
from fedul_flwr.config.method_settings import (
    AdmissionSettings,
    FedULSettings,
    LabelSourceSettings,
    ServerTrainingSettings,
    XCLPSettings,
)
from fedul_flwr.config.methods import METHODS, find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import PLAIN_MEANS, DPSettings, HeadSettings
from fedul_flwr.config.trusted_modules import BUILT_IN, named_modules
from fedul_flwr.errors import OwnDataError, UserError

NotNegative = Annotated[float, Field(ge=0)]

FOR_SIMULATIONS = ("paillier", "ot")
"""Values of `xclp.secure` that take for granted that clients do not lie. Paillier: nothing proves
that a modulus has no factor from which its owner reads each bit of an answer. Oblivious transfer:
nothing proves that all choices of an extension are of one matrix."""


class OwnerLimits(Settings):
    """The least that a run must do for the privacy of an owner's data.

    The server chooses a run's settings. The client checks them against these limits before it sends
    anything about its data. They apply to nodes with own data.
    """

    allow_methods: str = ""
    """Names of the allowed methods, separated by commas; empty allows every built-in one. A run may
    name a module of somebody's own, as method, base, model, features, optimizer or augment, only if
    its name `package.module:NAME` is here, too; likewise features that read a folder or fetch a
    network, as `huggingface:NAME`."""
    approve: Literal["runs-within-limits", "each-run"] = "runs-within-limits"
    """Whether the owner approves each run by itself (`fedul-flwr deploy runs`): its client answers
    nothing but who it is before that. Other settings, columns, classes, shapes, code, kinds of what
    leaves or owners make another run."""
    allow_plaintext: bool = False
    """Whether `xclp.secure = "plaintext"` is allowed, which shows the server all codes, and
    `closed-form.sum = "plaintext"`, which shows it the sums of this owner alone."""
    allow_known_seed: bool = False
    """Whether `xclp.codes-seed = "run"` is allowed, with which the server can test guesses."""
    allow_priors: bool = False
    """Whether `fedul.share-priors` is allowed, which tells the server every set's class priors."""
    allow_class_shares: bool = True
    """Whether `test-prior = "sets"`, FedUL's default for owners' own sets, is allowed: the server
    then gets the expected number of points of each class, and all clients get the mean."""
    allow_column_means: bool = False
    """Whether `standardize = "federation"` is allowed without `standardize-sum = "masked"`: the
    server then gets the mean and variance of every column."""
    require_secure_sum: bool = False
    """Whether training needs `secure-sum = "on"`, with which the server reads sums of updates."""
    min_labeled_clients: Annotated[int, Field(ge=1)] = 3
    """Least allowed `xclp.min-labeled-clients`; t + 2 against t owners who work together. Also the
    fewest clients in a masked sum of columns or updates, which are never fewer than 3."""
    fixed_clients: bool = False
    """Whether all secure sums of a kind must be over the same clients, in all runs with these data,
    whatever the server asks: a server that leaves one out reads about that client's part, if what
    it asks has hardly changed. A client that drops out ends the round. The owner's person allows
    another group by `fedul-flwr deploy runs regroup`. Without it the same question alone is not
    answered over other clients."""
    check_models: bool = False
    """Whether training must begin with the weights that the client computes from the run's seed,
    and no later model may be further away than clipped updates can have moved it: needs
    `max-update-norm` or `dp.clipping`, `base = "fedavg"` or `"fedprox"`, and no training at the
    server."""
    approved_starts: str = ""
    """With `check-models`: SHA-256 of other first weights that are allowed (`start-from`), with
    commas in between. The refusal of such a run names it."""
    fixed_features: bool = False
    """Whether XCLP may compare points by features that no training changes alone: `xclp-predict`
    with `features = "pixels"`."""
    max_epsilon: NotNegative = 0.0
    """If set, the most that all runs with these data may spend of their privacy together, by the
    owner's ledger: ε at δ = 1e-5, once for noise on updates, once for `codes-epsilon`. Runs in
    which the client adds no noise are refused."""
    max_codes_epsilon: NotNegative = 0.0
    """If set, XCLP needs a `codes-epsilon` from above 0 to this."""
    max_labels_epsilon: NotNegative = 0.0
    """If set, XCLP needs a `labels-epsilon` from above 0 to this."""
    max_clipping_norm: NotNegative = 0.0
    """If set, training needs `dp.clipping = "client"` with a `dp.norm` of at most this."""
    min_noise_multiplier: NotNegative = 0.0
    """If set, training needs `dp.clipping` with at least this `dp.noise-multiplier`. The server
    adds the noise, so this is its promise; with `secure-sum = "on"` the clients add it."""

    min_set_size: Annotated[int, Field(ge=0)] = 0
    """Fewest points of a set: with a smaller one the client takes no part."""
    min_class_count: Annotated[int, Field(ge=0)] = 0
    """Fewest points of a class, if it has any, in a set whose class shares leave
    (`fedul.share-priors`) or in all sets together (`test-prior = "sets"`)."""
    share_digits: Annotated[int, Field(ge=0, le=12)] = 0
    """Digits after the point to which class shares are rounded before they leave; 0 leaves them as
    they are."""
    max_rounds: Annotated[int, Field(ge=0)] = 0
    """If set, the most `num-rounds` of a run."""
    answer_seconds: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    """If set, an answer that is computed from points, or its refusal, leaves so many seconds after
    the message came, not sooner: more than training takes hides how long it takes."""

    @property
    def limits(self) -> dict[str, bool | int | float | str]:
        """Every limit by key."""
        return {key: value for key, value in self.to_flat().items() if key in _KEYS}

    def limits_in_words(self) -> Iterator[str]:
        """A line for each limit, as its owner reads it."""
        for key, value in self.limits.items():
            unset = "no" if value is False else _UNSET.get(key, "no limit")
            yield f"{key}: {'yes' if value is True else value or unset}"

    def check_modules(self, flat: Mapping[str, Any]) -> None:
        """Refuse settings that name a module, a folder or a network to fetch which the owner does
        not allow: whether it is there is not for the server to know."""
        for key in BUILT_IN:
            for name in named_modules({key: flat.get(key)}):
                if name not in self._allowed_methods:
                    raise self._refusal(f"{key} = {name!r}", "allow-methods")
        features = str(flat.get("features", ""))
        if features.startswith(BUILT_IN["features"]) and features not in self._allowed_methods:
            raise self._refusal(f"features = {features!r}", "allow-methods")

    def check_run(self, settings: RunConfig) -> None:
        """Refuse a run that does less than the owner wants."""
        for section in settings.sections.values():
            if isinstance(section, XCLPSettings) and section.secure in FOR_SIMULATIONS:
                why = "it takes for granted that no owner lies; choose 'rlwe'"
                raise setting_error("xclp.secure", section.secure, why, "setting-for-simulations")
        for limit, setting in self._broken(settings):
            raise self._refusal(setting, limit)

    @classmethod
    def kept_by(cls, settings: RunConfig) -> Self:
        """The strictest limits that a run keeps: one that breaks some of them protects less."""
        privacy, codes = settings.find(DPSettings), settings.find(XCLPSettings)
        strictest = {**_STRICTEST, "max-rounds": settings.num_rounds}
        if privacy is not None:
            strictest["max-clipping-norm"] = privacy.norm
            strictest["min-noise-multiplier"] = privacy.noise_multiplier
        if codes is not None:
            strictest["min-labeled-clients"] = codes.min_labeled_clients
            strictest["max-codes-epsilon"] = codes.codes_epsilon
            strictest["max-labels-epsilon"] = codes.labels_epsilon
        broken = {limit for limit, _ in cls.parse(strictest)._broken(settings)}
        return cls.parse({key: value for key, value in strictest.items() if key not in broken})

    def broken_by(self, settings: RunConfig) -> list[str]:
        """What a run does that these limits do not allow, in its settings."""
        return [setting for _, setting in self._broken(settings)]

    def _refusal(self, setting: str, limit: str) -> UserError:
        return UserError(
            f"The node's owner does not allow {setting}: its node config has "
            f"{limit} = {json.dumps(self.limits[limit])}.",
            "owner-does-not-allow",
            limit=limit,
        )

    @property
    def _allowed_methods(self) -> list[str]:
        return [name.strip() for name in self.allow_methods.split(",") if name.strip()]

    def _broken(self, settings: RunConfig) -> Iterator[tuple[str, str]]:
        """Limits that a run does not keep, each with the run's setting."""
        if settings.method not in (self._allowed_methods or METHODS):
            yield "allow-methods", f"method = {settings.method!r}"
        pools = settings.standardize == "federation" and settings.standardize_sum != "masked"
        if pools and not self.allow_column_means:
            has = "standardize = 'federation' without standardize-sum = 'masked'"
            yield "allow-column-means", has
        if settings.sends_class_masses and not self.allow_class_shares:
            yield "allow-class-shares", "test-prior = 'sets'"
        if 0 < self.max_rounds < settings.num_rounds:
            yield "max-rounds", f"num-rounds = {settings.num_rounds}"
        for section in settings.sections.values():
            if isinstance(section, AdmissionSettings):
                if section.share_priors and not self.allow_priors:
                    yield "allow-priors", "fedul.share-priors = true"
            elif isinstance(section, XCLPSettings):
                yield from self._broken_by_codes(settings, section)
        method = find_method(settings.method)
        if self.require_secure_sum:
            if method.trains and method.updates and settings.secure_sum == "off":
                yield "require-secure-sum", "secure-sum = 'off'"
            if settings.makes_heads and not settings.sums_heads:
                yield "require-secure-sum", "closed-form.sum = 'plaintext'"
            if settings.makes_heads and method.updates:
                yield "require-secure-sum", "a head in closed form on a model from the server"
        if settings.makes_heads and not settings.sums_heads and not self.allow_plaintext:
            yield "allow-plaintext", "closed-form.sum = 'plaintext'"
        if method.trains:
            yield from self._broken_by_noise(settings)
            yield from self._broken_by_models(settings) if self.check_models else ()

    def _broken_by_noise(self, settings: RunConfig) -> Iterator[tuple[str, str]]:
        privacy = settings[DPSettings]
        clipping = f"dp.clipping = {privacy.clipping!r}"
        adds_noise = privacy.clipping == "client" and settings.secure_sum == "on"
        adds_noise |= settings.makes_heads and settings[HeadSettings].epsilon > 0
        if self.max_epsilon > 0:  # what has no noise has no bound
            if not adds_noise:
                yield "max-epsilon", f"{clipping} and secure-sum = {settings.secure_sum!r}"
            if settings.selection == "heldout":
                yield "max-epsilon", "selection = 'heldout', whose losses have no noise"
            sets = settings.find(FedULSettings)
            if sets is not None and sets.fewer_sets:
                yield "max-epsilon", "fedul.fewer-sets = true, whose sum has no noise"
        if self.max_clipping_norm > 0:
            if privacy.clipping != "client":
                yield "max-clipping-norm", clipping
            if privacy.norm > self.max_clipping_norm:
                yield "max-clipping-norm", f"dp.norm = {privacy.norm:g}"
        if self.min_noise_multiplier > 0:
            if privacy.clipping == "none":
                yield "min-noise-multiplier", clipping
            if privacy.noise_multiplier < self.min_noise_multiplier:
                has = f"dp.noise-multiplier = {privacy.noise_multiplier:g}"
                yield "min-noise-multiplier", has

    def _broken_by_models(self, settings: RunConfig) -> Iterator[tuple[str, str]]:
        """What leaves a client unable to tell what a model may be (``check-models``)."""
        if settings.start_from and not self.approved_starts:
            yield "check-models", f"start-from = {settings.start_from!r}"
        if not find_method(settings.method).updates:
            return  # the client makes the network itself
        side = settings.find(LabelSourceSettings)
        at_server = side is None or side.labels_at == "server"
        if settings.base not in PLAIN_MEANS:
            yield "check-models", f"base = {settings.base!r}"
        if not (settings.max_update_norm > 0 or settings[DPSettings].clipping != "none"):
            yield "check-models", "max-update-norm = 0 without dp.clipping"
        if settings.find(ServerTrainingSettings) is not None and at_server:
            yield "check-models", "training at the server"
        if settings.makes_heads:
            yield "check-models", "a head in closed form on a model from the server"

    def _broken_by_codes(
        self, settings: RunConfig, codes: XCLPSettings
    ) -> Iterator[tuple[str, str]]:
        trained = settings.value("xclp-predict.features") in (None, "model")
        if self.fixed_features and trained:
            yield "fixed-features", "features of a trained model"
        if self.max_epsilon > 0 and not codes.codes_epsilon:
            yield "max-epsilon", "xclp.codes-epsilon = 0"
        if codes.secure == "plaintext" and not self.allow_plaintext:
            yield "allow-plaintext", "xclp.secure = 'plaintext'"
        if codes.codes_seed == "run" and not self.allow_known_seed:
            yield "allow-known-seed", "xclp.codes-seed = 'run'"
        if codes.min_labeled_clients < self.min_labeled_clients:
            has = f"xclp.min-labeled-clients = {codes.min_labeled_clients}"
            yield "min-labeled-clients", has
        for name, epsilon, largest in (
            ("codes-epsilon", codes.codes_epsilon, self.max_codes_epsilon),
            ("labels-epsilon", codes.labels_epsilon, self.max_labels_epsilon),
        ):
            if largest > 0 and not 0 < epsilon <= largest:  # 0 adds no noise
                yield f"max-{name}", f"xclp.{name} = {epsilon:g}"


_KEYS = frozenset(OwnerLimits.names())
_STRICTEST = {
    **dict.fromkeys(("require-secure-sum", "check-models", "fixed-features"), True),
    **{"allow-class-shares": False, "max-epsilon": sys.float_info.max},
}
"""Strictest values of limits that do not follow from a run's numbers; ε is any that is finite."""
_UNSET = {
    "allow-methods": "every built-in method",
    "approved-starts": "none",
    "share-digits": "all",
}
"""What 0 or no text means; of other limits that there is none."""


Format = Literal["auto", "sets", "files", "class-folders"]

SET_FORMATS: tuple[Format, ...] = ("sets",)
"""Formats of unlabeled sets."""
POINT_FORMATS: tuple[Format, ...] = ("files", "class-folders")
"""Formats of points that may have labels."""

_WITHOUT_DATA = ("partition-id", "num-partitions", "data", "labels", "log", "identity")


class NodeConfig(OwnerLimits):
    """Settings of a node. Flower's simulation sets only the two numbers."""

    noun: ClassVar[str] = "node config"
    page: ClassVar[str] = "docs/own-data.md"

    partition_id: Annotated[int, Field(ge=0)] = 0
    """Number of the client, from 0."""
    num_partitions: Annotated[int, Field(ge=0)] = 0
    """Number of clients of the run; 0 leaves it open."""
    data: str = ""
    """Folder of the client's own data; empty for a client of a simulated split."""
    format: Format = "auto"
    """Format of the folder; `auto` detects it."""
    known_labels: str = ""
    """CSV file `name,label` that replaces the folder's `labels.csv`."""
    labels: str = ""
    """CSV file for inferred labels; empty writes it next to the folder."""
    identity: str = ""
    """Folder with this owner's private key, `node.key`, and the public keys of all owners,
    `owners.pub`; empty leaves clients' keys for each other unsigned."""
    log: str = ""
    """CSV file to which a line is added for every message: what was asked, and what was sent."""
    ledger: str = ""
    """Folder for what the owner has answered, spent and approved, over all runs; empty takes
    `DATA.ledger` beside the data. All nodes with the same data need the same one."""

    @classmethod
    def parse(cls, values: Mapping[str, Any], prefix: str = "") -> Self:
        """Check the node config from Flower."""
        try:
            return super().parse(values, prefix)
        except UserError as error:
            raise OwnDataError(str(error), error.code, **error.values) from None

    @model_validator(mode="after")
    def _check_node(self) -> Self:
        if 0 < self.num_partitions <= self.partition_id:
            raise ValueError(
                f"partition-id = {self.partition_id}: must be below num-partitions = "
                f"{self.num_partitions}, for clients count from 0"
            )
        if self.data:
            return self
        for key, default in self.defaults().items():
            value = getattr(self, key.replace("-", "_"))
            if key not in _WITHOUT_DATA and value != default:
                raise ValueError(f"{key} = {value!r}: needs data, the folder that it is about")
        return self

    @property
    def approves_each_run(self) -> bool:
        """Whether the owner of its data decides on each run by itself."""
        return bool(self.data) and self.approve == "each-run"

    def expect_format(self, method: str, allowed: tuple[Format, ...]) -> None:
        """Refuse a format that ``method`` cannot use."""
        if self.format not in ("auto", *allowed):
            raise OwnDataError(
                f"Node config format = {self.format!r}: method {method!r} reads "
                f"{' or '.join(map(repr, allowed))}.",
                "setting-not-a-choice",
                setting="format",
            )
        if self.known_labels and allowed == SET_FORMATS:
            raise OwnDataError(
                f"Node config known-labels = {self.known_labels!r}: method {method!r} learns from "
                "unlabeled sets and reads no labels.",
                "setting-without-effect",
                setting="known-labels",
            )
