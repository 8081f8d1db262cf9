"""Cross-client label propagation (Scott, Yeo and Lampert), table 2."""

from collections.abc import Iterator

from fedul_flwr.experiments.table import Column, Table

from .search import SEARCH
from .table_1 import QUICK, QUICK_START, ROWS, START

SETTINGS = {
    "method": "xclp-predict",
    "dataset": "flwrlabs/fed-isic2019",
    "image-size": 224,
    "partition": "natural",
    "natural.column": "center",
    "validation-fraction": 0.1,
    "model": "torchvision:efficientnet_b0",
    "labels.fraction": 1.0,
    "xclp-predict.features": "model",
    "xclp.secure": "plaintext",
}
HOSPITALS = 6
"""BCN, HAM vidir molemax, HAM vidir modern, HAM rosendahl, MSK, HAM vienna dias."""


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    shared = {**SETTINGS, "start-from": "torchvision", **(QUICK if quick else {})}
    # The text does not say which features the table has. One run leaves out each hospital in turn:
    # "left-out" in labels.json has a balanced accuracy for each.
    yield Column("pretrained", {**shared, "xclp-predict.leave-one-out": True}, ROWS, HOSPITALS)
    # All points of this hospital and no others are labeled, by XCLP on features of FedAvg on the
    # other hospitals, and by that model itself (FedAvg).
    folder = "runs/xclp/table-2/quick" if quick else "runs/xclp/table-2"
    for hospital in range(HOSPITALS):
        settings = {**shared, "labels.without-client": hospital}
        start = {**settings, **START, **(QUICK_START if quick else {})}
        settings["start-from"] = f"{folder}/training-client{hospital}"
        yield Column(f"finetuned hospital {hospital}", settings, ROWS, HOSPITALS, start)


TABLE = Table(
    title="Fed-ISIC2019: a hospital by the labels of the others",
    source="Cross-client label propagation (Scott, Yeo and Lampert), table 2",
    measures=["balanced-accuracy", "balanced-accuracy-network"],
    note=(
        "The text that these were written from has lost the paper's figures. The column "
        "pretrained is over all hospitals, each left out in turn."
    ),
    columns=columns,
    search=SEARCH,
)
