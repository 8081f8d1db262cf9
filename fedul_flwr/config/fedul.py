"""Settings of FedUL and of all other methods that train on unlabeled sets."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedul_flwr.config.base import Settings
from fedul_flwr.config.privacy import DPSettings


class UnlabeledSetSettings(Settings):
    """How a simulation generates the clients' unlabeled sets and their class priors.

    Not used on devices, where a client has its own sets and ``priors.csv``.
    """

    table: ClassVar[str] = "fedul"
    num_sets: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    """Unlabeled sets per client (M)."""
    num_sets_max: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """If set, M differs between clients, from `num-sets` to this."""
    num_sets_spread: Literal["random", "even"] = "random"
    """How M differs: drawn at random per client, or in equal steps from the first client to the
    last (table E.12: 10, 20, 30, 40, 50)."""
    priors: Literal["dominant", "uniform"] = "dominant"
    """Rows of Pi: U[0.1, 1] with one class times 10 (authors' code), or U[0.1, 0.9] (text)."""
    same_priors: bool = False
    """All clients assign their points to sets by one matrix whose columns sum to 1 (authors' code,
    MNIST IID). With `overlap = "shared"` the sets of a client then contain K/M of its points: all
    for M = K, half for M = 2K. A client with fewer sets than others takes the first rows."""
    prior_draws: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Number of draws of Pi that are summed for `same-priors` (authors' code: the number of
    clients, so 5 in table 1 and 10 in table E.13). More draws make Pi easier to invert."""
    overlap: Literal["disjoint", "shared"] = "disjoint"
    """Whether sets of one client may share points (`shared`: the paper's benchmark)."""
    prior_noise: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Noise epsilon on the priors that clients use (table E.9); 0 is exact."""
    prior_noise_form: Literal["symmetric", "literal"] = "symmetric"
    """Factor of the noise: 1 + eps·(2·gamma − 1), or the text's 1 + (2·eps − 1)·gamma."""
    prior_counts: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Labels per set, drawn at random, from which clients estimate its class priors (posterior mean
    under Jeffreys' prior); 0 is exact."""

    @model_validator(mode="after")
    def _check_noise(self) -> Self:
        if self.prior_noise_form == "literal" and self.prior_noise == 0:
            raise ValueError("fedul.prior-noise-form = 'literal' needs fedul.prior-noise above 0")
        if self.prior_counts and self.prior_noise:
            raise ValueError(
                "fedul.prior-counts and fedul.prior-noise exclude each other: "
                "class priors are estimated from labels, or exact with noise"
            )
        return self

    @model_validator(mode="after")
    def _check_draws(self) -> Self:
        if self.prior_draws > 1 and not self.same_priors:
            raise ValueError("fedul.prior-draws above 1 needs fedul.same-priors = true")
        return self

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if 0 < self.num_sets_max < self.num_sets:
            raise ValueError(
                f"fedul.num-sets-max = {self.num_sets_max} must be 0 or at least "
                f"fedul.num-sets = {self.num_sets}"
            )
        if self.num_sets_spread == "even" and self.num_sets_max == 0:
            raise ValueError("fedul.num-sets-spread = 'even' needs fedul.num-sets-max above 0")
        return self


class AdmissionSettings(UnlabeledSetSettings):
    """Checks of clients' sets, for every method that trains on unlabeled sets."""

    strict_rank: bool = False
    """Refuse a client whose own Pi has rank below K; otherwise only warn."""
    share_priors: bool = False
    """Clients send Pi to the server, for its rank check and for reports."""
    on_refusal: Literal["stop", "drop"] = "stop"
    """If a client's sets cannot be used: stop the run, or continue without the client."""


class FedULSettings(AdmissionSettings):
    """Settings of FedUL."""

    surrogate_loss: Literal["nll", "release"] = "nll"
    """Negative log-likelihood (eq. 9), or the loss of the authors' code."""
    heldout_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Fraction of every set that is held out, if the best round is selected by held-out loss."""
    learn_priors: bool = False
    """Clients learn Pi from the model within the uncertainty of what they were told (intervals or
    counts; in a simulation `prior-counts` or `prior-noise`). Exact rows stay as they are told."""
    learn_priors_after: Annotated[int, Field(ge=1, le=1_000_000)] = 5
    """First rounds, in which `learn-priors` keeps Pi as told: a model that has learned little
    teaches Pi its errors."""
    check_priors: bool = True
    """In the last round every client checks whether the model's predictions fit the class priors
    that it was told, and names sets that do not fit in its own log. Nothing of it is sent."""
    fewer_sets: bool = False
    """Accept clients with fewer sets than classes, at least two: other clients' sets have to tell
    the classes apart that its own do not. With `share-priors` the server checks that they do."""

    @model_validator(mode="after")
    def _check_own(self) -> Self:
        if self.learn_priors and self.surrogate_loss == "release":
            raise ValueError("fedul.learn-priors = true needs fedul.surrogate-loss = 'nll'")
        default = type(self).model_fields["learn_priors_after"].default
        if self.learn_priors_after != default and not self.learn_priors:
            raise ValueError("fedul.learn-priors-after needs fedul.learn-priors = true")
        if self.fewer_sets and self.strict_rank:
            raise ValueError(
                "fedul.fewer-sets and fedul.strict-rank exclude each other: "
                "fewer sets than classes have a rank below K"
            )
        return self


def fewer_sets(options: AdmissionSettings) -> bool:
    """Whether clients with fewer sets than classes can take part."""
    return isinstance(options, FedULSettings) and options.fewer_sets


def may_ask_for_shares(fedul: FedULSettings, dp: DPSettings) -> bool:
    """Whether ``test-prior = "sets"`` is possible: the loss takes class priors, and differential
    privacy does not forbid their mean without noise."""
    return fedul.surrogate_loss != "release" and dp.clipping == "none"
