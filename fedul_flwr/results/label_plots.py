"""Pictures of labels that clients gave their own points (see results/label_scores.py)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def draw_label_plots(scores: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw what is known of the labels."""
    del scores, folder
    return []
