"""Scores of class priors that a simulation's clients were told, learned and checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from fedul_flwr.data.set_split import SetTruth
from fedul_flwr.data.types import Floats
from fedul_flwr.federated.messages import PRIOR_FIT


def score_priors(folder: Path, server_round: int, truths: Sequence[SetTruth]) -> dict[str, Any]:
    """Results of the clients' checks of their class priors in one round, beside the true priors.

    Parameters
    ----------
    folder : has one folder per client, by number; clients without a check in this round are left
        out.
    truths : what is true of the clients' sets, in order; empty if unknown.

    Returns
    -------
    ``{"prior_fit": scores}`` for the summary; empty without checks. Scores are ``sets``, how many
    were checked, and ``misfits``, how many do not fit. With truths also ``told_distance`` and
    ``found_distance``, mean total variation distances from a set's true class priors to those that
    the client was told and to those that the model's predictions give; and ``misfit_distance``, the
    former over sets that do not fit, or None.
    """
    name = f"*/{PRIOR_FIT}-{server_round}.safetensors"
    found = {int(file.parent.name): load_file(file) for file in sorted(folder.glob(name))}
    if not found:
        return {}
    misfits = np.concatenate([arrays["misfits"] for arrays in found.values()])
    scores: dict[str, Any] = {"sets": len(misfits), "misfits": int(misfits.sum())}
    if truths:
        told = _distances([(truths[c].priors, truths[c].true_priors) for c in found])
        seen = _distances([(found[c]["shares"], truths[c].true_priors) for c in found])
        scores["told_distance"] = float(told.mean())
        scores["found_distance"] = float(seen.mean())
        scores["misfit_distance"] = float(told[misfits].mean()) if misfits.any() else None
    return {"prior_fit": scores}


def _distances(pairs: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Total variation distances of all rows of all pairs."""
    return np.concatenate([np.abs(one - other).sum(axis=1) / 2 for one, other in pairs])
