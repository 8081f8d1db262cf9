"""Settings of FedUL with consistency between views."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fedul_flwr.config.base import Settings


class FedULConsistencySettings(Settings):
    """FedUL with consistency between weak and strong views of a point."""

    weight: Annotated[float, Field(ge=0)] = 0.3
    """Weight of the consistency loss; 0 is FedUL."""
    threshold: Annotated[float, Field(ge=0, lt=1)] = 0.95
    """Least top probability of a weak view whose strong view is trained on."""
    form: Literal["fixmatch", "uda"] = "fixmatch"
    """Cross-entropy of the weak view's top class, or divergence from its sharpened posterior."""
    temperature: Annotated[float, Field(gt=0)] = 0.4
    """Sharpening of `uda`; 1 leaves the posterior as it is."""
    target: Literal["posterior", "set-posterior"] = "set-posterior"
    """Posterior of the class model, or given the set of the point as well."""
    ramp_up_rounds: Annotated[int, Field(ge=0)] = 20
    """Rounds over which the weight grows, as exp(-5·(1 − t)²)."""

    @model_validator(mode="after")
    def _check_temperature(self) -> Self:
        default = type(self).model_fields["temperature"].default
        if self.form != "uda" and self.temperature != default:
            raise ValueError("fedul-consistency.temperature is for fedul-consistency.form = 'uda'")
        return self
