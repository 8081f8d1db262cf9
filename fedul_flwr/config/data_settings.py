"""Settings of a run's method and data."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from fedul_flwr.config.base import AUTO, Settings, nearest, only_with, only_without
from fedul_flwr.config.class_priors import parse_prior

LITE0 = "efficientnet-lite0"
TORCHVISION, HUB, RUN = "torchvision:", "huggingface:", "run:"
"""Beginnings of names that are not those of a user's own function."""

_SIDE = re.compile(r"(.+)@([1-9]\d{0,3})")


def split_side(name: str) -> tuple[str, int]:
    """``NAME@SIDE`` as name and side in pixels; 0 without a side."""
    match = _SIDE.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, 0)


def check_features(name: str) -> None:
    """Refuse a name that can be no extractor's with a ``ValueError``."""
    plain, _ = split_side(name)
    if plain and plain != LITE0 and ":" not in plain:
        forms = f"{LITE0}, torchvision:NAME, huggingface:NAME, run:DIRECTORY"
        hint = nearest(plain, [LITE0])
        raise ValueError(f"must be one of {forms} or 'package.module:function'{hint}")


def is_reference(name: str) -> bool:
    """Whether ``name`` is that of a user's own function."""
    return ":" in name and not name.startswith((TORCHVISION, HUB, RUN))


def is_function(source: str) -> bool:
    """Whether ``source``, which may also be a path, is ``package.module:function``."""
    module, _, function = source.partition(":")
    return all(part.isidentifier() for part in [*module.split("."), function])


PartitionName = Literal[
    "iid",
    "dirichlet",
    "pathological",
    "shard",
    "natural",
    "majority",
    "majority-mild",
    "imbalanced",
]
BUILT_IN = ("digits", "breast-cancer", "wine")
"""Data sets that ship with scikit-learn."""
SIMULATED = only_without("client-data")
"""Rule for settings that make the data of a simulation's clients."""
NEW_SPLIT = only_without("labels.split")
"""Rule for settings that an earlier run's split replaces."""
TEST_PRIOR_WORDS = (AUTO, "uniform", "sets", "em")


class DataSettings(Settings):
    """Settings of the data: where they come from, how they are split, what they become."""

    method: str = "fedul"
    """Name of a built-in method, or `package.module:NAME` of your own."""
    method_options: str = ""
    """Settings of your own method as `key=value …`, or as keys of a table with its name; built-in
    methods have a table each."""

    dataset: str = "digits"
    """`digits`, `breast-cancer`, `wine`, a Hugging Face hub name, or the path of a folder with
    train and test data. If devices have their own data, it is the server's test data, or `none`."""
    class_names: Annotated[str, only_with("dataset", "none")] = ""
    """Names of the classes, separated by commas."""
    input_shape: Annotated[str, only_with("dataset", "none")] = ""
    """Height x width x channels of images, such as `28x28x1`, or length of vectors, such as
    `30`."""
    columns: Annotated[str, only_with("points", "vectors")] = ""
    """Columns file, or directory of a run with one: which columns of tables are features, which of
    them are categories, and what fills their missing values (docs/vectors.md). Empty takes all
    columns of `dataset`."""
    label_column: str = ""
    """Column of labels in tables; empty takes `label` or another usual name."""
    text_column: Annotated[str, only_with("points", "texts")] = ""
    """Column of texts in tables that `features`, a function of your own, turns into vectors; other
    columns than this one and the labels are left out (docs/features.md)."""
    missing: Annotated[
        Literal["refuse", "mean", "median", "most-frequent"], only_with("points", "vectors")
    ] = "refuse"
    """Missing values in tables whose columns have no `fill`: refuse them, or fill them by a
    column's mean, median or most frequent value in the training file of `dataset`, or without one
    among the owner's own points. Categories are filled by the most frequent one. What fills them is
    kept for predictions (docs/vectors.md)."""
    standardize: Annotated[
        Literal["auto", "none", "constants", "owner", "federation"],
        only_with("inputs", "vectors", idle=("none",)),
    ] = "auto"
    """Standardize vectors by the means and scales in `columns` (`constants`), by those of the
    owner's own points (`owner`), or by those of all clients' points (`federation`), see
    docs/vectors.md. `auto` is `federation` for vectors and `none` for images and texts; with
    `server-only`, which asks no client, it is `owner`."""
    standardize_sum: Annotated[
        Literal["auto", "plaintext", "masked"], only_with("standardize", "auto", "federation")
    ] = "auto"
    """With means and scales of all clients: each client sends the mean and variance of its columns
    (`plaintext`), or masked sums, of which the server learns the total over all clients alone
    (`masked`, for three clients or more). `auto` is `masked` where `xclp.secure` is on, else
    `plaintext`."""
    image_size: Annotated[int, Field(ge=0, le=1024), only_with("points", "images")] = 0
    """Resize images to squares of this side in pixels; 0 keeps their size."""
    image_bits: Annotated[int, Field(ge=0, le=16), only_with("points", "images")] = 0
    """Bits that the values of images use in files of 16 bits: 12 for values up to 4095, as X-rays
    have them. The upper 8 of them are taken. 0 takes the fewest of 8, 10, 12, 14 and 16 that hold
    all values of the training data in `dataset`; owners and `fedul-flwr predict` use the same."""
    features: str = ""
    """Replace points by features of a fixed function, computed once: `efficientnet-lite0`,
    `torchvision:NAME`, `huggingface:NAME` (pretrained networks), `run:DIRECTORY` (the best model of
    a run, in simulations), perhaps with `@SIDE` to resize images to that many pixels; or your own
    `package.module:function`. The model then takes vectors."""
    client_data: str = ""
    """Path of a folder with one sub-folder per simulated client, each in the form of a client's own
    data on a device; `dataset` is then the server's, or `none`."""
    partition: Annotated[PartitionName, SIMULATED, NEW_SPLIT] = "iid"
    """How a simulation splits the training data over the clients. With FedUL's `majority` each
    client has two classes of nearly all its points (tables D.5 and D.6), with `majority-mild` of
    0.15 to 0.25 of them each (the paper's main text). With FedMatch's `imbalanced` a
    client has half of its points in one class, 0.15 in the class before and after it each, and the
    rest in the others."""
    points_per_client: Annotated[int, Field(ge=0), SIMULATED, NEW_SPLIT] = 0
    """Keep only this many points per client (simulation); 0 keeps all. `majority`, `majority-mild`
    and `imbalanced` draw them in their class proportions, before any class runs out."""
    validation_fraction: Annotated[float, Field(ge=0, lt=1), NEW_SPLIT] = 0.2
    """Fraction of the training data, with labels, that selects the best round at the server."""
    server_fraction: Annotated[float, Field(ge=0, lt=1), NEW_SPLIT] = 0.0
    """Fraction of the training data, with labels, that the server keeps for methods that train
    there. It is withheld from the clients under every method, so that comparisons share splits."""
    test_prior: Annotated[
        str, only_without("fedul.surrogate-loss", "release", idle=("uniform", "em"))
    ] = AUTO
    """Class priors at test time (pi): `uniform`, K numbers separated by commas, `sets` (mean of all
    clients' sets), or `em` (train for `uniform`, estimate pi from the server's test images).
    `auto` is `sets` where owners bring their own sets, except with `dp.clipping`; else `uniform`.
    """

    @field_validator("features")
    @classmethod
    def _check_features(cls, value: str) -> str:
        check_features(value)
        return value

    @model_validator(mode="after")
    def _check_texts(self) -> Self:
        if self.text_column and not is_reference(self.features):
            raise ValueError(
                f"text-column = {self.text_column!r} needs features = 'package.module:function', "
                "a function of your own that turns texts into vectors"
            )
        return self

    @field_validator("image_bits")
    @classmethod
    def _check_bits(cls, value: int) -> int:
        if 0 < value < 8:
            raise ValueError("must be 8 to 16, or 0 to take it from the training data")
        return value

    @field_validator("input_shape")
    @classmethod
    def _check_shape(cls, value: str) -> str:
        if value and not re.fullmatch(r"[1-9]\d*(x[1-9]\d*x[13])?", value):
            raise ValueError(
                "must be height x width x channels of images, such as 28x28x1 (channels 1 or 3), "
                "or the length of vectors, such as 30"
            )
        return value

    @model_validator(mode="after")
    def _check_fractions(self) -> Self:
        if self.validation_fraction + self.server_fraction >= 1:
            raise ValueError(
                f"validation-fraction = {self.validation_fraction} and server-fraction = "
                f"{self.server_fraction} must leave training data: their sum must be below 1"
            )
        return self

    def class_priors(self) -> list[float] | None:
        """`test-prior` as K numbers; ``None`` if it is a word (training then assumes uniform
        priors, except with `sets`)."""
        return None if self.test_prior in TEST_PRIOR_WORDS else parse_prior(self.test_prior)

    @property
    def test_prior_source(self) -> str:
        """Source of pi: the word in `test-prior`, or `given` for numbers."""
        return self.test_prior if self.test_prior in TEST_PRIOR_WORDS else "given"

    @field_validator("test_prior")
    @classmethod
    def _check_prior(cls, value: str) -> str:
        if value not in TEST_PRIOR_WORDS:
            parse_prior(value, TEST_PRIOR_WORDS)
        return value
