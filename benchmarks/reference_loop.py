"""FedUL's local loop in a straightforward way: images one by one, autograd for everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE, LEARNING_RATE, L1 = 128, 1e-4, 1e-5


def _transform(rotates: bool) -> Callable[[Image.Image], Tensor]:
    from torchvision import transforms  # seconds, which tests of other parts need not wait

    parts = [transforms.ToTensor(), transforms.Normalize(0.5, 0.5)]
    composed: Callable[[Image.Image], Tensor] = transforms.Compose(
        [transforms.RandomRotation(20), *parts] if rotates else parts
    )
    return composed


class Images(Dataset[tuple[Tensor, int]]):
    """Rows ``points`` of uint8 ``(N, h, w, 1)`` with their targets."""

    def __init__(
        self,
        images: NDArray[Any],
        points: NDArray[Any],
        targets: NDArray[Any],
        transform: Callable[[Image.Image], Tensor],
    ) -> None:
        self.images, self.points, self.targets = images, points, targets
        self.transform = transform

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self.images[self.points[index]].squeeze(-1))
        return self.transform(image), int(self.targets[index])


class SurrogateLoss(nn.Module):
    """Negative log of the surrogate posterior (FedUL paper, theorem 1 and eq. 9)."""

    def __init__(self, priors: Tensor, set_sizes: Tensor) -> None:
        super().__init__()
        shares = set_sizes.float() / set_sizes.sum()
        self.transition = shares[:, None] * priors.float()  # uniform test priors cancel

    def forward(self, logits: Tensor, sets: Tensor) -> Tensor:
        posterior = logits.softmax(dim=1) @ self.transition.T
        posterior = posterior / posterior.sum(dim=1, keepdim=True)
        return nn.functional.nll_loss(torch.log(posterior + 1e-12), sets)


def train(
    model: nn.Module,
    images: NDArray[Any],
    points: NDArray[Any],
    sets: NDArray[Any],
    loss: Callable[[Tensor, Tensor], Tensor],
    epochs: int = 1,
) -> None:
    """Local epochs of one round."""
    data = Images(images, points, sets, _transform(rotates=True))
    loader = DataLoader(data, BATCH_SIZE, shuffle=True, drop_last=True, num_workers=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    model.train()
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            penalty = sum(weight.abs().sum() for weight in model.parameters())
            value = loss(model(inputs), targets) + L1 * penalty
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


@torch.no_grad()
def error(model: nn.Module, images: NDArray[Any], points: NDArray[Any], labels: Any) -> float:
    """Percent of ``points`` misclassified; ``labels`` has one entry per image."""
    model.eval()
    loader = DataLoader(Images(images, points, labels[points], _transform(rotates=False)), 512)
    wrong = sum(int((model(inputs).argmax(dim=1) != targets).sum()) for inputs, targets in loader)
    return 100 * wrong / len(points)
