"""A model with a second linear layer on its features (FedSiam's double head)."""

from __future__ import annotations

from torch import Tensor, nn

from fedul_flwr.models.last_layer import feature_layer, inputs_of

SUFFIX = "+head"


class TwoHeads(nn.Module):
    """``model`` with a second head, linear in the inputs of its last linear layer.

    It behaves like ``model``: ``forward`` returns the logits of the first head. The second head's
    arrays are ``second.weight`` and ``second.bias``; names of the others have the prefix
    ``model.``.

    Parameters
    ----------
    model : any model with a linear layer.
    num_classes : K.

    Raises
    ------
    UserError
        If ``model`` has no linear layer.
    """

    def __init__(self, model: nn.Module, num_classes: int) -> None:
        super().__init__()
        layer = feature_layer(model)
        # Before the model, so that the last linear layer of both is the model's.
        self.second = nn.Linear(layer.in_features, num_classes)
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits ``(n, K)`` of the first head."""
        logits: Tensor = self.model(inputs)
        return logits

    def both(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits ``(n, K)`` of the first and of the second head, in one pass."""
        with inputs_of(feature_layer(self.model)) as features:
            logits = self(inputs)
        return logits, self.second(features[-1])
