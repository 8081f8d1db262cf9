"""Settings of ours, a stand-in for FedMatch's figure 9."""

from collections.abc import Iterator

from fedul_flwr.experiments.table import Column, Table

# Chest X-rays of three classes; all hospitals are in every round. The data: python
# experiments/covid_hospitals.py DOWNLOADED covid-hospitals
SETTINGS = {
    "method": "fedmatch",
    "fedmatch.threshold": 0.85,
    "dataset": "./covid-hospitals/server",
    "client-data": "./covid-hospitals/10-hospitals-few",
    "image-size": 32,
    "validation-fraction": 0.5,
    "model": "resnet9",
    "num-rounds": 100,
    "selection": "last",
    "local-epochs": 1,
    "batch-size": 5,
    "ssl.unlabeled-batch-size": 20,
    "optimizer": "adam",
    "learning-rate": 3e-4,
    "learning-rate-schedule": "constant",
    "augment": "none",
    "weight-decay": 1e-4,
}
LABELS = {
    "labels at clients": {},  # five per class and hospital
    "labels at server": {
        "scenario.labels-at": "server",
        "server-fraction": 0.4,
        "fedmatch.l1-weight": 1e-5,
        "fedmatch.psi-cutoff": 1e-5,
        "fedmatch.difference-threshold": 1e-5,
    },
}
ROWS = {
    # Labels alone: the given labels and no unlabeled image. All labels: the ceiling, with the
    # labels of the same images.
    "labels alone": {"method": "given-labels"},
    "labels alone; twice the first weights": {"method": "given-labels", "init-scale": 2.0},
    "FedProx-UDA": {"method": "uda", "base": "fedprox", "fedprox.proximal-mu": 1e-2},
    "FedProx-FixMatch": {
        "method": "fixmatch",
        "fixmatch.threshold": 0.85,
        "base": "fedprox",
        "fedprox.proximal-mu": 1e-2,
    },
    "FedMatch without unlabeled points": {"fedmatch.consistency-weight": 0.0},
    "FedMatch": {},
    "all labels": {"method": "all-labels", "client-data": "./covid-hospitals/10-hospitals-all"},
}
QUICK = {
    "model": "resnet9-quarter",
    "num-rounds": 20,
    "evaluate-every": 5,
    "learning-rate": 1e-3,
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for labels, of_labels in LABELS.items():
        settings = {**SETTINGS, **of_labels}
        if quick:
            settings |= QUICK
        yield Column(labels, settings, ROWS, clients=10)


TABLE = Table(
    title="COVID-19 X-rays at ten hospitals with folders of their own",
    source="Settings of ours, a stand-in for FedMatch's figure 9",
    measures=["accuracy"],
    note=(
        "Data and hospitals are those of experiments/covid_hospitals.py, not the paper's. "
        "COVID-19 images come from another source than the others, so a model can tell the "
        "source: the rows compare methods and say nothing about diagnoses. The test set has 238 "
        "images: one is 0.4 points."
    ),
    columns=columns,
)
