"""Settings in a SuperNode's ``--node-config``: the client's number and its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedul_flwr.config.owner_limits import OwnerLimits
from fedul_flwr.errors import OwnDataError, UserError

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

    @classmethod
    def parse(cls, values: Mapping[str, Any], prefix: str = "") -> Self:
        """Check the node config from Flower.

        Raises
        ------
        OwnDataError
            With the key, the value and the allowed values: for an unknown key, a wrong type, a
            ``partition-id`` not below ``num-partitions``, or a key that needs ``data``.
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
        default = NodeConfig.model_construct().to_flat()
        for key, value in self.to_flat().items():
            if not self.data and key not in _WITHOUT_DATA and value != default[key]:
                raise ValueError(f"{key} = {value!r}: needs data, the folder that it is about")
        return self

    def expect_format(self, method: str, allowed: tuple[Format, ...]) -> None:
        """Refuse a format that ``method`` cannot use.

        Raises
        ------
        OwnDataError
            With the format and the allowed ones, or about labels if the method reads none.
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
