"""What the XCLP paper compares in tables 4 and 5.

FedSiam has two heads, and features that are not of unit length. FedMatch has a step size of its
own, as SGD on psi diverges from 1/fedmatch.l2-weight on, and, as it has no stages, one schedule
over all rounds. Clients without labels train psi alone. Labels alone have as many rounds as the
others: their second stage goes on without pseudo labels.
"""

ROWS = {
    "FedAvg (labels only)": {"method": "labels-only"},
    "FedAvg + perclientLP": {"method": "local-lp"},
    "FedAvg + network": {"method": "pseudo-label"},
    "FedSem+": {"method": "fedsem"},
    "FedMatch": {
        "method": "fedmatch",
        "fedmatch.threshold": 0.85,
        "learning-rate": 1e-3,
        "learning-rate-rounds": 0,
    },
    "FedSiam": {"method": "fedsiam", "model": "cnn13-plain+head"},
    "FedAvg + XCLP": {"method": "xclp"},
}
