"""Settings of ours for owners without labels: the names of the classes, and class shares."""

from collections.abc import Iterator

from fedul_flwr.experiments.table import Column, Table

SETTINGS = {
    "method": "fixmatch",
    "features": "huggingface:openai/clip-vit-base-patch32",
    "model": "linear",
    "validation-fraction": 0.02,
    "points-per-client": 1000,
    "num-rounds": 20,
    "local-epochs": 1,
    "batch-size": 50,
    "optimizer": "sgd",
    "learning-rate": 1.0,
    "learning-rate-schedule": "cosine",
    "augment": "none",
    "selection": "last",
}
"""Vectors have length 1 and weights 100, so that a step of 1 is a hundredth of a weight."""
TISSUE = "names:a photo of healthy lymph node tissue|a photo of a tumor in lymph node tissue"
COLUMNS = {
    "CIFAR-10": {"dataset": "uoft-cs/cifar10", "start-from": "names"},
    # ImageNet has no such images.
    "EuroSAT": {
        "dataset": "blanchon/EuroSAT_RGB",
        "start-from": "names:a centered satellite photo of {}.",
    },
    "PatchCamelyon": {
        "dataset": "dpdl-benchmark/patch_camelyon",
        "start-from": TISSUE,
    },
    # A client is a hospital.
    "Camelyon17": {
        "dataset": "wltjr1007/Camelyon17-WILDS",
        "start-from": TISSUE,
        "partition": "natural",
        "natural.column": "center",
    },
}
WITHOUT_LABELS = {"labels.total": 0}
ROWS = {
    "pseudo labels from names": {
        **WITHOUT_LABELS,
        "method": "pseudo-label",
        "semi.labels-only-rounds": 0,
    },
    "FixMatch from names": {**WITHOUT_LABELS, "ssl.unlabeled-batch-size": 50},
    "names in the graph": {
        **WITHOUT_LABELS,
        "method": "xclp-predict",
        "xclp-predict.features": "model",
        "xclp-predict.nearest-names": 5,
        "xclp.alpha": 0.3,
        "xclp.secure": "plaintext",
    },
    "names and class shares": {"method": "fedul", "fedul.num-sets": 10},
    "class shares alone": {
        "method": "closed-form",
        "num-rounds": 2,
        "start-from": "",
        "fedul.num-sets": 10,
    },
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for name, of_data in COLUMNS.items():
        settings = {**SETTINGS, **of_data}
        if quick:
            settings |= {"points-per-client": 200, "num-rounds": 5}
        yield Column(name, settings, ROWS, clients=3 if name == "Camelyon17" else 10)


TABLE = Table(
    title="Names of classes, and class shares",
    source="Settings of ours",
    measures=["start-error", "test-error"],
    note=(
        "No point has a label. The error before round 1 is that of the names alone. The row of "
        "names in the graph has the errors of the labels that it gives the clients' own points."
    ),
    columns=columns,
)
