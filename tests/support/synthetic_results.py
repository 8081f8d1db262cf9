"""Run directories as the server app writes them, with made-up numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np


def write_run(
    directory: Path,
    *,
    method: str = "fedul",
    seed: int = 0,
    rounds: int = 20,
    planned: int = 0,
    clients: int = 5,
    sets: int = 10,
    class_names: tuple[str, ...] = tuple("0123456789"),
    finished: bool = True,
    outcome: dict[str, Any] | None = None,
    with_sets: bool = True,
    with_counts: bool = False,
    **settings: Any,
) -> Path:
    """Write a run of ``rounds`` rounds and return its directory."""
    directory.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    rows = []
    for step in range(rounds + 1):
        error = 88 * np.exp(-step / 4) + 2.4 + generator.normal() * 0.15
        rows.append(
            {
                "round": step,
                "test_error": round(error, 3),
                "validation_error": round(error + generator.normal() * 0.3, 3),
                "surrogate_loss": None if step == 0 else round(2.3 * np.exp(-step / 9) + 1.4, 4),
                "heldout_loss": round(2.3 * np.exp(-step / 9) + 1.5, 4),
                "surrogate_chance": round(float(np.log(sets)), 4),
                "seconds": 1.5 if step == 0 else round(12 + generator.normal(), 2),
                "seconds_fit": 0.0 if step == 0 else round(10 + generator.normal() * 0.5, 2),
                "seconds_waiting": 0.0 if step == 0 else 1.0,
                "bytes_up": 0 if step == 0 else 21_345_678,
                "bytes_down": 0 if step == 0 else 21_645_678,
                "clients": 0 if step == 0 else clients,
                "failures": 0,
            }
        )
    num_classes = len(class_names)
    people = []
    for client in range(clients):
        sizes = generator.integers(300, 900, size=sets)
        priors = generator.dirichlet(np.full(num_classes, 0.4), size=sets)
        shared = client != 3
        people.append(
            {
                "id": client,
                "num_points": int(sizes.sum()),
                "set_sizes": sizes.tolist() if with_sets else None,
                "priors": priors.tolist() if shared else None,
                "class_counts": (sizes @ priors).round().tolist() if with_counts else None,
                "condition_number": 12.3 if shared else None,
                "status": "dropped" if client == 3 else "accepted",
                "reason": "shared no priors" if client == 3 else "",
            }
        )
    best = min(rows, key=lambda row: row["validation_error"])
    config = {
        "method": method,
        "dataset": "digits",
        "model": "mlp",
        "partition": "iid",
        "num-rounds": planned or rounds,
        "seed": seed,
        "fedul.num-sets": sets,
        **settings,
    }
    data = {
        "input_shape": [8, 8, 1],
        "num_classes": num_classes,
        "class_names": list(class_names),
    }
    write_json(directory / "config.json", {"settings": config, "data": data})
    write_json(
        directory / "environment.json",
        {
            "python": "3.11.2",
            "packages": {"torch": "2.15.0", "flwr": "1.41.0"},
            "cpu": "2 cores",
            "commit": "b5cbd47",
        },
    )
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (directory / "metrics.jsonl").write_text(lines, encoding="utf-8")
    write_json(directory / "federation.json", {"clients": people, "class_names": list(class_names)})
    if finished:
        write_json(
            directory / "summary.json",
            {
                "status": "completed",
                "method": method,
                "dataset": "digits",
                "partition": "iid",
                "num_clients": clients,
                "rounds": rounds,
                "seed": seed,
                "best_round": best["round"],
                "test_error": best["test_error"],
                "final_test_error": rows[-1]["test_error"],
                "seconds_total": 245.6,
                "seconds_per_round": 12.28,
                "bytes_up": 426_913_560,
                "bytes_down": 432_913_560,
                **(outcome or {}),
            },
        )
    return directory


def write_json(path: Path, value: object) -> None:
    """Write ``value`` as JSON."""
    path.write_text(json.dumps(value), encoding="utf-8")


def label_scores(
    clients: int = 6,
    sources: tuple[str, ...] = ("xclp", "left-out", "local-lp", "network"),
    points: str = "unlabeled",
    seed: int = 0,
) -> dict[str, Any]:
    """Content of ``labels.json``."""
    generator = np.random.default_rng(seed)
    share = np.linspace(0.01, 1, 100)
    found = {}
    for position, source in enumerate(sources):
        errors = generator.uniform(2, 20 * (position + 1), size=clients)
        found[source] = {
            "points": 100 * clients,
            "error": float(errors.mean()),
            "balanced_accuracy": 97.5 - float(errors.mean()),
            "unreached": float(position),
            "coverage": {
                "share": share.tolist(),
                "error": (errors.mean() * share).tolist(),
            },
            "clients": [
                {
                    "id": client,
                    "points": 100,
                    "error": float(error),
                    "balanced_accuracy": 97.5 - float(error),
                    "unreached": 0.0,
                }
                for client, error in enumerate(errors)
            ],
        }
    return {"points": points, "sources": found}


def write_label_run(directory: Path, *, clients: int = 6, scored: bool = True) -> Path:
    """Write a run that labeled its clients' points and return its directory."""
    write_run(directory, method="xclp-predict", clients=clients, with_sets=False, finished=False)
    (directory / "metrics.jsonl").unlink()
    scores = label_scores(clients) if scored else {"points": "unlabeled", "sources": {}}
    errors = {source: found["error"] for source, found in scores["sources"].items()}
    if scored:
        write_json(directory / "labels.json", scores)
    write_json(
        directory / "summary.json",
        {
            "status": "completed",
            "method": "xclp-predict",
            "model": "mlp",
            "dataset": "digits",
            "partition": "iid",
            "num_clients": clients,
            "answered_clients": clients,
            "seed": 0,
            "test_error": errors.get("xclp"),
            "balanced_accuracy": None,
            "scored_points": scores["points"] if scored else None,
            "errors": errors,
            "seconds_total": 3.2,
            "bytes_up": 1_400_000,
            "bytes_down": 500_000,
            "failures": 0,
        },
    )
    return directory
