"""FedUL, both ways of using the server's labels, and training on those labels alone."""

ROWS = {
    "FedUL": {"method": "fedul"},
    "FedUL + M1": {"method": "fedul-finetune"},
    "FedUL + M2": {"method": "fedul-mix"},
    "server only": {"method": "server-only"},
}
