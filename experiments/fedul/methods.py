"""What the FedUL paper compares, and all labels as the ceiling.

FedPL, FedLLP and FedLLP-VAT are as in the authors' code: FedPL takes its labels from the drawn
priors and has no L1 penalty, the other two have dropout. FedLLP-VAT's weight and radius are those
of MNIST; the tables have others for CIFAR-10 and the hospitals.
"""

ROWS = {
    "FedPL": {
        "method": "fedpl",
        "l1": 0.0,
        "fedpl.recipe": "release",
        "fedpl.relabel": True,
        "fedpl.warm-up-rounds": 5,
    },
    "FedLLP": {"method": "fedllp", "fedllp.dropout": 0.2},
    "FedLLP-VAT": {"method": "fedllp-vat", "fedllp.dropout": 0.2},
    "FedUL": {"method": "fedul"},
    "FedAvg 10 %": {"method": "supervised", "supervised.label-fraction": 0.1},
    "FedAvg 100 %": {"method": "supervised"},
}
