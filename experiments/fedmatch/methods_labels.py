"""What FedMatch's paper compares in table 5 and figure 6 d.

For figure 6 c the text says "other base models".
"""

ROWS = {
    "FedProx-UDA": {"method": "uda", "base": "fedprox", "fedprox.proximal-mu": 1e-2},
    "FedProx-FixMatch": {
        "method": "fixmatch",
        "fixmatch.threshold": 0.85,
        "base": "fedprox",
        "fedprox.proximal-mu": 1e-2,
    },
    "FedMatch without decomposition": {"method": "fedmatch", "fedmatch.decomposition": False},
    "FedMatch": {"method": "fedmatch"},
}
