"""FedUL (Lu et al., ICLR 2022), table D.8: Cost of an epoch."""

from fedul_flwr.experiments.table import Table

PAPER = {
    "epoch-seconds": {
        "MNIST Non-IID": {"FedPL": 3.29, "FedLLP": 1.67, "FedLLP-VAT": 2.10, "FedUL": 1.80},
        "MNIST IID": {"FedPL": 4.78, "FedLLP": 2.45, "FedLLP-VAT": 2.87, "FedUL": 2.35},
        "CIFAR-10 Non-IID": {"FedPL": 3.37, "FedLLP": 1.95, "FedLLP-VAT": 3.43, "FedUL": 2.63},
        "CIFAR-10 IID": {"FedPL": 5.70, "FedLLP": 2.44, "FedLLP-VAT": 4.86, "FedUL": 3.80},
        "hospitals Non-IID": {"FedPL": 32.47, "FedUL": 32.34},
    },
    "gflops": {
        "MNIST Non-IID": {"FedPL": 0.048125312, "FedUL": 0.048125422},
        "MNIST IID": {"FedPL": 0.048125312, "FedUL": 0.048125422},
        "CIFAR-10 Non-IID": {"FedPL": 0.141595648, "FedUL": 0.141595758},
        "CIFAR-10 IID": {"FedPL": 0.141595648, "FedUL": 0.141595758},
        "hospitals Non-IID": {"FedPL": 6.937938944, "FedUL": 6.937939028},
    },
}

TABLE = Table(
    title="Cost of an epoch",
    source="FedUL (Lu et al., ICLR 2022), table D.8",
    measures=["epoch-seconds", "gflops"],
    note=(
        "The paper's seconds are of a TITAN X; ours, and a count that gives the paper's "
        "operations exactly, are under [cost of a method](measurements.md#cost-of-a-method-"
        "fedul-paper-table-d8)."
    ),
    benchmark="python -m benchmarks method_cost",
    paper=PAPER,
)
