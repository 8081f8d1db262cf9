"""FedMatch (Jeong et al., ICLR 2021), figure 9: COVID-19 radiography, 10 clients."""

from collections.abc import Iterator

from fedul_flwr.experiments.table import Column, Table, figures_of

from .methods import ROWS

SETTINGS = {
    "method": "fedmatch",
    # three classes; to be fetched by hand, see experiments/README.md
    "dataset": "./covid-radiography",
    "image-size": 32,  # which ResNet-9 is made for
    "partition": "iid",
    "validation-fraction": 0.05,
    "model": "resnet9",
    "num-rounds": 100,
    "local-epochs": 1,
    "optimizer": "sgd",
    "learning-rate": 1e-3,
    "learning-rate-schedule": "client-plateau",
    "augment": "none",
    "weight-decay": 0.0,
    "ssl.recipe": "release",
    "fedmatch.threshold": 0.75,
}
LABELS = {
    # 5 per class at each
    "labels at clients": {
        "labels.total": 150,
        "batch-size": 10,
        "learning-rate-patience": 5,
    },
    # Ours: a tenth of the points, in the proportions of their classes.
    "labels at server": {
        "scenario.labels-at": "server",
        "server-fraction": 0.1,
        "batch-size": 100,
        "learning-rate-patience": 20,
        "fedmatch.l1-weight": 1e-5,
        "fedmatch.psi-cutoff": 1e-5,
        "fedmatch.difference-threshold": 1e-5,
    },
}
QUICK = {
    "model": "resnet9-quarter",
    "num-rounds": 30,
    "evaluate-every": 5,
    "local-epochs": 5,
    "learning-rate": 3e-3,
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for labels, of_labels in LABELS.items():
        settings = {**SETTINGS, **of_labels}
        if quick:
            settings |= QUICK
            if labels == "labels at server":
                settings["server.epochs"] = 5
        rows = {row: ROWS[row] for row in ("FedProx-SL", *COMPARED)}
        yield Column(labels, settings, rows, clients=10)


COMPARED = ["FedProx-UDA", "FedProx-FixMatch", "FedMatch"]
ACCURACY = {
    "labels at clients": [(74.24, 0.25), (70.02, 0.28), (78.67, 0.23)],
    "labels at server": [(80.11, 0.18), (72.15, 0.14), (84.32, 0.11)],
}

TABLE = Table(
    title="COVID-19 radiography, 10 clients",
    source="FedMatch (Jeong et al., ICLR 2021), figure 9",
    measures=["accuracy"],
    note="32 x 32 pixels, points dealt at random and 5 % for validation are ours.",
    columns=columns,
    paper={"accuracy": figures_of(COMPARED, ACCURACY)},
)
