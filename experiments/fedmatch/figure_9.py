"""FedMatch (Jeong et al., ICLR 2021), figure 9: COVID-19 radiography, 10 clients."""

from collections.abc import Iterator

from fedul_flwr.experiments.table import Column, Table, figures_of

from .methods import ROWS
from .protocol import AT_CLIENTS, AT_SERVER, of_resnet9
from .protocol import SETTINGS as SHARED

SETTINGS = {
    **SHARED,
    # three classes; to be fetched by hand, see experiments/README.md
    "dataset": "./covid-radiography",
    "image-size": 32,  # which ResNet-9 is made for
    "partition": "iid",
    "validation-fraction": 0.05,
    "num-rounds": 100,
}
LABELS = {
    # 5 per class at each
    "labels at clients": {
        **AT_CLIENTS,
        "labels.total": 150,
    },
    # Ours: a tenth of the points, in the proportions of their classes.
    "labels at server": {
        **AT_SERVER,
        "server-fraction": 0.1,
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
        rows = {row: of_resnet9(ROWS, quick)[row] for row in ("FedProx-SL", *COMPARED)}
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
