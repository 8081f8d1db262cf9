"""What clients declare that they send is what message logs of runs contain, no less and no more."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.config.methods import METHODS, PARTLY_LABELED
from fedul_flwr.federated.declared import declared, unprotected
from fedul_flwr.federated.payload import part_of
from tests.support.fedmatch_exchanges import TINY
from tests.support.message_log import TO_SERVER, Recorded, read_message_log
from tests.support.runs import train
from tests.support.settings import Settings

QUICK: dict[str, Any] = {
    **{"model": "mlp", "num_rounds": 1, "local_epochs": 1, "points_per_client": 60},
    **{"precision": "float32", "selection": "last"},
}
SETS = {**QUICK, "fedul.num-sets": 10}
STAGED = {**QUICK, "labels.total": 60, "semi.labels-only-rounds": 1, "num_rounds": 2}
MATCHED = {**QUICK, "labels.total": 60}
BY_LABELS_AT_SERVER = {**QUICK, "scenario.labels-at": "server", "server_fraction": 0.03}
TABLE: dict[str, Any] = {"dataset": "wine", "standardize": "federation", "points_per_client": 20}
XCLP = {**QUICK, "labels.total": 60, "semi.labels-only-rounds": 0, "xclp.num-bits": 64}
PREDICT = {
    **{"method": "xclp-predict", "labels.total": 18, "points_per_client": 12},
    **{"xclp.num-bits": 64},
}
SMALL = {**PREDICT, "points_per_client": 4, "labels.total": 6, "xclp.num-bits": 8}


def plain_run(method: str) -> dict[str, Any]:
    """Settings of a short run, by the data and the tables of a method."""
    described = METHODS[method]
    if described.data in PARTLY_LABELED:
        labeled = STAGED if "semi" in described.tables else MATCHED
        return labeled if "labels" in described.tables else QUICK
    return {**SETS, "server_fraction": 0.05 if "server" in described.tables else 0.0}


RUNS: dict[str, dict[str, Any]] = {
    **{method: plain_run(method) for method in METHODS},
    "fedul, held-out losses": {**SETS, "selection": "heldout"},
    "fedul, priors": {**SETS, "fedul.share-priors": True, "test_prior": "sets"},
    "fedul, scaffold": {**SETS, "base": "scaffold", "optimizer": "sgd"},
    "fedul, batch norm": {**SETS, "model": TINY, "base": "scaffold", "optimizer": "sgd"},
    "fedul, float64": {**SETS, "precision": "float64"},
    "fedul, table": {**SETS, **TABLE, "fedul.num-sets": 4, "standardize_sum": "plaintext"},
    "fedul, secure sum": {**SETS, "secure_sum": "on", "selection": "heldout", "test_prior": "sets"},
    "fedmatch, secure sum": {**MATCHED, "secure_sum": "on", "fedmatch.helpers": 0},
    "supervised, secure sum": {**SETS, "secure_sum": "on", "base": "scaffold", "optimizer": "sgd"},
    "fedul, local": {**SETS, "base": "local", "evaluate": "local"},
    "fedul, personal head": {**SETS, "personal": "head"},
    "fedul, head": {**SETS, "num_rounds": 2, "head": "closed-form"},
    "fedul-heads": {**SETS, "num_rounds": 3},
    "closed-form": {**SETS, "num_rounds": 2},
    "closed-form, plaintext": {**SETS, "num_rounds": 2, "closed-form.sum": "plaintext"},
    "closed-form-labels": {**MATCHED, "num_rounds": 2},
    "xclp": {**XCLP, "xclp.secure": "plaintext"},
    "xclp, rlwe": {**XCLP, "xclp.secure": "rlwe"},
    "xclp, table": {**XCLP, **TABLE, "labels.total": 20, "standardize_sum": "masked"},
    "xclp-predict": {**PREDICT, "xclp.secure": "plaintext"},
    "xclp-predict, names": {
        **{**PREDICT, "features": "tests.support.made_encoder:of_images", "model": "linear"},
        **{"start_from": "tests.support.made_encoder:of_names", "xclp.secure": "plaintext"},
        **{"xclp-predict.features": "model", "xclp-predict.nearest-names": 3},
    },
    "xclp-predict, rlwe": {**PREDICT, "xclp.secure": "rlwe"},
    "xclp-predict, ot": {**SMALL, "xclp.secure": "ot"},
    "xclp-predict, paillier": {**SMALL, "xclp.secure": "paillier"},
    "fedmatch, one part": {**MATCHED, "fedmatch.decomposition": False},
    "fedmatch, labels at the server": BY_LABELS_AT_SERVER,
    "fedmatch, personal norm": {**MATCHED, "model": TINY, "personal": "norm"},
    "semifl": {**BY_LABELS_AT_SERVER, "model": TINY, "semifl.threshold": 0.1},
    "semifl, learning status": {
        **{**BY_LABELS_AT_SERVER, "model": TINY, "semifl.learning-status": True},
        "semifl.threshold": "adaptive",
    },
    "given-labels, labels at the server": BY_LABELS_AT_SERVER,
}
"""A run in which every client sends all that it declares."""


def answers(directory: Path) -> list[Recorded]:
    return [m for m in read_message_log(directory) if m.direction == TO_SERVER]


def parts(messages: Iterable[Recorded]) -> set[tuple[str, str, str]]:
    """Phase, record and name of all that clients sent."""
    found = set()
    for message in messages:
        phase = message.phase or message.type
        found |= {(phase, r, name) for r, of in message.values.items() for name in of}
        found |= {(phase, array.record, array.name) for array in message.arrays}
    return found


@pytest.mark.parametrize("run", RUNS)
def test_what_is_sent_is_what_is_declared(settings: Settings, tmp_path: Path, run: str) -> None:
    method = run.partition(",")[0]
    config = settings(**{"method": method, **RUNS[run]})
    train(config, 3, message_log=tmp_path / "t")
    sent, entries = parts(answers(tmp_path / "t")), declared(config)
    of = {part: part_of(entries.get(part[0], {}), *part[1:]) for part in sent}
    assert {part for part, entry in of.items() if entry is None} == set()
    for phase, named in entries.items():
        for name, entry in named.items():
            seen = any(at == phase and found is entry for (at, *_), found in of.items())
            assert seen or not entry.undisturbed, (phase, name)


@pytest.mark.parametrize("secure_sum", ["off", "on"])
def test_that_updates_have_no_noise_is_said_also_of_sums(
    settings: Settings, secure_sum: str
) -> None:
    noisy = {"dp.clipping": "client", "dp.norm": 1.0, "dp.noise-multiplier": 1.0}
    without, noised = (
        {*unprotected(settings(**QUICK, method="labels-only", secure_sum=secure_sum, **more))}
        for more in ({}, noisy)
    )
    [said] = without - noised
    assert "clipped" in said
