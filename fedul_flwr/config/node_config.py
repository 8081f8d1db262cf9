"""What a SuperNode's ``--node-config`` may hold: which client it is, and where its data lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedul_flwr.config.base import Settings
from fedul_flwr.errors import OwnDataError, UserError

Format = Literal["auto", "sets", "files", "class-folders"]

SET_FORMATS: tuple[Format, ...] = ("sets",)
"""Formats of unlabeled sets."""
POINT_FORMATS: tuple[Format, ...] = ("files", "class-folders")
"""Formats of points of which some have a label."""


class NodeConfig(Settings):
    """Where a client runs. Flower's simulation gives the two numbers alone."""

    noun: ClassVar[str] = "node config"
    page: ClassVar[str] = "docs/own-data.md"

    partition_id: Annotated[int, Field(ge=0)] = 0
    """Number of the client, from 0."""
    num_partitions: Annotated[int, Field(ge=0)] = 0
    """Number of clients of the run; 0 leaves it open."""
    data: str = ""
    """Folder of the client's own data; empty where it has a share of a simulation's."""
    format: Format = "auto"
    """How the folder is to be read; `auto` finds out."""
    known_labels: str = ""
    """CSV file `name,label`, in place of the folder's `labels.csv`."""
    labels: str = ""
    """CSV file to write inferred labels to; empty writes beside the folder."""

    @classmethod
    def parse(cls, values: Mapping[str, Any], prefix: str = "") -> Self:
        """Check what Flower hands over.

        Raises
        ------
        OwnDataError
            Naming the key, the value and what is allowed: an unknown key, a wrong type, a
            ``partition-id`` that is not below ``num-partitions``, or a key that needs ``data``.
        """
        try:
            return super().parse(values, prefix)
        except UserError as error:
            raise OwnDataError(str(error), "settings") from None

    @model_validator(mode="after")
    def _check_partition(self) -> Self:
        if 0 < self.num_partitions <= self.partition_id:
            raise ValueError(
                f"partition-id = {self.partition_id}: must be below num-partitions = "
                f"{self.num_partitions}, for clients count from 0"
            )
        return self

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        for key, value in (("format", self.format), ("known-labels", self.known_labels)):
            if not self.data and value not in ("auto", ""):
                raise ValueError(f"{key} = {value!r}: needs data, the folder that it is about")
        return self

    def expect_format(self, method: str, allowed: tuple[Format, ...]) -> None:
        """Refuse another format than the data of ``method`` can have.

        Raises
        ------
        OwnDataError
            Naming the format and those that are allowed, or labels where none are read.
        """
        if self.format not in ("auto", *allowed):
            raise OwnDataError(
                f"Node config format = {self.format!r}: method {method!r} reads "
                f"{' or '.join(map(repr, allowed))}."
            )
        if self.known_labels and allowed == SET_FORMATS:
            raise OwnDataError(
                f"Node config known-labels = {self.known_labels!r}: method {method!r} learns from "
                "unlabeled sets and reads no labels.",
                "settings",
            )
