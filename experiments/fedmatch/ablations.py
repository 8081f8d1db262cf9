"""FedMatch without its parts (figure 6 a and b, table 5), with labels at the clients.

The paper has curves only. What drops sigma or psi drops it where the model is evaluated: training
is FedMatch's own, but for when the step size falls. The last three are ours. Without unlabeled
points psi still follows sigma, as l2-weight says.
"""

ROWS = {
    "FedMatch": {"method": "fedmatch"},
    "without inter-client consistency": {"method": "fedmatch", "fedmatch.helpers": 0},
    "sigma alone": {"method": "fedmatch", "fedmatch.evaluate-with": "sigma"},
    "psi alone": {"method": "fedmatch", "fedmatch.evaluate-with": "psi"},
    "without decomposition": {"method": "fedmatch", "fedmatch.decomposition": False},
    "without unlabeled points": {"method": "fedmatch", "fedmatch.consistency-weight": 0.0},
    "without decomposition; twice the first weights": {
        "method": "fedmatch",
        "fedmatch.decomposition": False,
        "init-scale": 2.0,
    },
    "labels alone": {"method": "given-labels"},
}
