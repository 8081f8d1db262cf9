"""Settings of FedUL with consistency between views."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedul_flwr.config.base import OR_ADAPTIVE, Settings


class FedULConsistencySettings(Settings):
    """FedUL with consistency between weak and strong views of a point."""

    table: ClassVar[str] = "fedul-consistency"
    weight: Annotated[float, Field(ge=0)] = 0.3
    """Weight of the consistency loss; 0 is FedUL."""
    threshold: Annotated[float, Field(ge=0, lt=1), *OR_ADAPTIVE] = 0.95
    """Smallest top probability of the weak view with which the strong view is trained on.
    `adaptive` is the mean top probability of a client's points by the model that it received:
    some point always reaches it, and wrong targets count early."""
    form: Literal["fixmatch", "uda"] = "fixmatch"
    """Loss of the strong view: cross-entropy with the weak view's top class, or divergence from the
    weak view's sharpened posterior."""
    temperature: Annotated[float, Field(gt=0)] = 0.4
    """Temperature that sharpens the posterior in `uda`; 1 does not change it."""
    target: Literal["posterior", "set-posterior"] = "set-posterior"
    """Target: the class posterior, or the posterior given the point's set as well."""
    ramp_up_rounds: Annotated[int, Field(ge=0)] = 20
    """First rounds, over which the weight grows as exp(-5·(1 − t)²)."""

    @model_validator(mode="after")
    def _check_temperature(self) -> Self:
        default = type(self).model_fields["temperature"].default
        if self.form != "uda" and self.temperature != default:
            raise ValueError("fedul-consistency.temperature is for fedul-consistency.form = 'uda'")
        return self
