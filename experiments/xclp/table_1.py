"""Cross-client label propagation (Scott, Yeo and Lampert), table 1."""

from collections.abc import Iterator
from itertools import product

from fedul_flwr.experiments.table import Column, Table

from .search import SEARCH

SETTINGS = {
    "method": "xclp-predict",
    "dataset": "flwrlabs/fed-isic2019",
    "image-size": 224,
    "partition": "natural",
    "natural.column": "center",
    "validation-fraction": 0.1,
    "model": "torchvision:efficientnet_b0",
    "labels.new-fraction": 0.2,
    "xclp-predict.features": "model",
    "xclp-predict.use-unlabeled": False,
    "xclp.secure": "plaintext",
}
# The fine-tuning. Batch, step size, optimizer, the focal loss (without weights of classes) and 100
# steps a round are FLamby's for FedAvg on this data. Its augmentation is a flip here. The paper's
# number of rounds is lost; 200 is ours.
START = {
    "method": "labels-only",
    "start-from": "torchvision",
    "num-rounds": 200,
    "evaluate-every": 10,
    "client-weights": "examples",
    "local-epochs": 1,
    "batch-size": 64,
    "local-steps": 100,
    "labels-only.focal-gamma": 2.0,
    "optimizer": "sgd",
    "learning-rate": 0.01,
    "learning-rate-schedule": "constant",
    "augment": "flip",
}
# not run: no copy of the data was at hand
QUICK = {
    "image-size": 64,
    "points-per-client": 250,
}
QUICK_START = {
    "num-rounds": 10,
    "evaluate-every": 5,
    "local-steps": 0,
    "learning-rate": 0.03,
}
ROWS = {"XCLP": {}}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    # The EfficientNet as pretrained on ImageNet, whose own labels mean nothing, for its last layer
    # is fresh; and fine-tuned by FedAvg, whose column the model's own labels are. Percents are of
    # the training points; the paper's sizes of the training sets are lost.
    for features, percent in product(("pretrained", "finetuned"), (10, 25, 50, 100)):
        settings = {**SETTINGS, "start-from": "torchvision", "labels.fraction": percent / 100}
        if quick:
            settings |= QUICK
        start = {**settings, **START, **(QUICK_START if quick else {})}
        if features == "finetuned":
            folder = "runs/xclp/table-1/quick" if quick else "runs/xclp/table-1"
            settings["start-from"] = f"{folder}/training-{percent / 100:g}"
        name = f"{features} {percent} %"
        yield Column(name, settings, ROWS, 6, start if features == "finetuned" else None)


TABLE = Table(
    title="Fed-ISIC2019: labels for new points of 6 hospitals",
    source="Cross-client label propagation (Scott, Yeo and Lampert), table 1",
    measures=["balanced-accuracy", "balanced-accuracy-alone", "balanced-accuracy-network"],
    note=(
        "The text that these were written from has lost the paper's figures. The fractions are "
        "ours."
    ),
    columns=columns,
    search=SEARCH,
)
