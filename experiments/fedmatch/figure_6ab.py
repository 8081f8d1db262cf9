"""FedMatch (Jeong et al., ICLR 2021), figure 6 (a) and (b)."""

from collections.abc import Iterator

from fedul_flwr.experiments.table import Column, Table

from .ablations import ROWS
from .protocol import AT_CLIENTS, CIFAR

# of this column in table 1
SETTINGS = {
    **CIFAR,
    **AT_CLIENTS,
    "partition": "iid",
    "labels.total": 5000,
}
SETTING = {
    "Batch-IID labels at clients": {},
}
QUICK = {
    "points-per-client": 200,
    "model": "resnet9-quarter",
    "num-rounds": 40,
    "evaluate-every": 5,
    "fraction-train": 0.25,
    "learning-rate": 0.01,
    "labels.total": 1000,
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for setting, of_setting in SETTING.items():
        settings = {**SETTINGS, **of_setting}
        if quick:
            settings |= QUICK
        yield Column(setting, settings, ROWS, clients=20 if quick else 100)


TABLE = Table(
    title="CIFAR-10: FedMatch without each of its parts",
    source="FedMatch (Jeong et al., ICLR 2021), figure 6 (a) and (b)",
    measures=["accuracy"],
    note="The paper has curves and prints no number.",
    columns=columns,
)
