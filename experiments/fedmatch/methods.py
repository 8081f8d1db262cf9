"""What FedMatch's paper compares in tables 1 and 6.

SL has the labels of all points: the ceiling. Figure 9 has FedMatch and the rows with FedProx. It
has no figure of SL.
"""

ROWS = {
    "FedAvg-SL": {"method": "all-labels"},
    "FedProx-SL": {"method": "all-labels", "base": "fedprox", "fedprox.proximal-mu": 1e-2},
    "FedAvg-UDA": {"method": "uda"},
    "FedProx-UDA": {"method": "uda", "base": "fedprox", "fedprox.proximal-mu": 1e-2},
    "FedAvg-FixMatch": {"method": "fixmatch", "fixmatch.threshold": 0.85},
    "FedProx-FixMatch": {
        "method": "fixmatch",
        "fixmatch.threshold": 0.85,
        "base": "fedprox",
        "fedprox.proximal-mu": 1e-2,
    },
    "FedMatch": {"method": "fedmatch"},
}
