"""FedMatch (Jeong et al., ICLR 2021), figure 6 (c)."""

from collections.abc import Iterator

from fedul_flwr.experiments.table import Column, Table

from .methods_labels import ROWS
from .protocol import AT_CLIENTS, of_resnet9
from .protocol import SETTINGS as SHARED

SETTINGS = {
    **SHARED,
    **AT_CLIENTS,
    "dataset": "uoft-cs/cifar10",
    "partition": "iid",
    "points-per-client": 1050,  # 5 labeled ones per class and 1,000 others
    "validation-fraction": 0.06,
    "num-rounds": 100,
    "measure-forgetting": True,  # labeled_error in metrics.jsonl, after every round
    "labels.total": 50,
}
SETTING = {
    "one client": {},  # the text names no others
}
QUICK = {
    "model": "resnet9-quarter",
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
        yield Column(setting, settings, of_resnet9(ROWS, quick), clients=1)


TABLE = Table(
    title="CIFAR-10: what becomes of the labeled points",
    source="FedMatch (Jeong et al., ICLR 2021), figure 6 (c)",
    measures=["labeled-error"],
    note="The paper has a curve and prints no number; a single client is ours.",
    columns=columns,
)
