"""FedMatch (Jeong et al., ICLR 2021), table 6: The AlexNet-like model."""

from collections.abc import Iterator

from fedul_flwr.experiments.table import Column, Table, by_row

from .methods import ROWS
from .protocol import AT_CLIENTS, AT_SERVER
from .protocol import SETTINGS as SHARED

SETTINGS = {
    **SHARED,
    **AT_CLIENTS,
    "dataset": "uoft-cs/cifar10",
    "partition": "iid",
    "validation-fraction": 0.06,
    "model": "alexnet-like",
    "num-rounds": 200,
}
SETTING = {
    # 5 labels per class at each client, which have 56,500 images in place of the paper's 63,000.
    # The text does not name the data set; this is that of table 2. Errors are the global model's.
    "Streaming-NonIID labels at clients": {
        "dataset": "zalando-datasets/fashion_mnist",
        "partition": "imbalanced",
        "validation-fraction": 0.058333,
        "num-rounds": 100,
        "labels.total": 5000,
        "scenario.streaming-steps": 10,
        "scenario.rounds-per-step": 10,
    },
    # The same with 100 labels per class, all at the server. Clients have 55,500 images.
    "Streaming-NonIID labels at server": {
        **AT_SERVER,
        "dataset": "zalando-datasets/fashion_mnist",
        "partition": "imbalanced",
        "validation-fraction": 0.058333,
        "server-fraction": 0.016666,
        "num-rounds": 100,
        "scenario.streaming-steps": 10,
        "scenario.rounds-per-step": 10,
    },
    # 5 labels per class at each client, which have 47,000 images in place of 54,000
    "Batch-IID F=0.05": {"labels.total": 5000, "fraction-train": 0.05},  # 5 in a round
    "Batch-IID F=0.1": {"labels.total": 5000, "fraction-train": 0.1},
    "Batch-IID F=0.2": {"labels.total": 5000, "fraction-train": 0.2},
}
QUICK = {
    "points-per-client": 200,
    "model": "lenet",
    "num-rounds": 40,
    "evaluate-every": 5,
    "learning-rate": 0.01,
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for setting, of_setting in SETTING.items():
        settings = {**SETTINGS, **of_setting}
        if quick:
            settings |= QUICK
            if setting.startswith("Streaming"):
                settings |= {"points-per-client": 250, "num-rounds": 30, "evaluate-every": 3}
                settings["scenario.rounds-per-step"] = 3
            else:
                settings["fraction-train"] *= 5  # as many clients in a round
            if "labels.total" in settings:
                settings["labels.total"] = 1000
        yield Column(setting, settings, ROWS, clients=20 if quick else 100)


COLUMNS = list(SETTING)
ACCURACY = {
    "FedAvg-SL": [(68.20, 0.29), (70.51, 0.11), (47.23, 0.31), (47.87, 0.73), (48.73, 0.15)],
    "FedProx-SL": [(68.47, 0.13), (70.55, 0.72), (47.54, 0.28), (48.01, 0.17), (49.20, 0.64)],
    "FedAvg-UDA": [(52.25, 0.04), (46.28, 0.32), (35.27, 0.29), (35.20, 0.53), (36.21, 0.12)],
    "FedProx-UDA": [(52.84, 0.15), (46.35, 0.31), (34.94, 0.46), (36.67, 0.73), (35.80, 0.43)],
    "FedAvg-FixMatch": [(57.09, 0.89), (52.67, 0.78), (32.33, 0.51), (36.27, 0.33), (37.61, 0.05)],
    "FedProx-FixMatch": [(57.12, 0.41), (51.51, 0.32), (36.83, 0.23), (36.37, 0.39), (37.40, 0.18)],
    "FedMatch": [(63.84, 0.18), (59.12, 0.35), (41.67, 0.32), (41.97, 0.14), (42.18, 0.27)],
}

TABLE = Table(
    title="The AlexNet-like model",
    source="FedMatch (Jeong et al., ICLR 2021), table 6",
    measures=["accuracy"],
    note=(
        "The test set keeps its 10,000 images, so clients have fewer than the paper's. The text "
        "does not name the data of streaming; Fashion-MNIST is ours."
    ),
    columns=columns,
    paper={"accuracy": by_row(COLUMNS, ACCURACY)},
)
