"""What several tables of FedUL share: MNIST, Non-IID, sets of one dominant class."""

SETTINGS = {
    "method": "fedul",
    "dataset": "ylecun/mnist",
    "partition": "majority",
    "validation-fraction": 0.2,
    "model": "cnn6",
    "num-rounds": 100,
    "local-epochs": 1,
    "batch-size": 128,
    "optimizer": "adam",
    "learning-rate": 1e-4,
    "learning-rate-schedule": "constant",
    "l1": 1e-5,
    "augment": "rotate",
    "fedul.num-sets": 10,
    "fedul.priors": "dominant",
    "fedul.overlap": "shared",
}
QUICK = {
    "model": "cnn6-quarter",
    "num-rounds": 40,
    "evaluate-every": 10,
    "learning-rate": 1e-3,
}
ROWS = {"FedUL": {}}
