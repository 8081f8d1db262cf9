"""Step sizes that follow the validation loss: what rounds train with, stages, resumed runs."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.data.seeds import stream
from fedul_flwr.learning.plan import plateau
from tests.support.plain_loops import assert_ends_as, fresh, loss_of, mean_state, split_of, step
from tests.support.refusals import refuses
from tests.support.runs import assert_same_run, cut_off, metrics, resume, same, train
from tests.support.settings import Settings

PLATEAU = {"learning_rate_schedule": "plateau", "learning_rate_patience": 1}
# Steps so long that the loss rises again and again.
WILD: dict[str, Any] = {
    **{"model": "mlp", "method": "supervised", "optimizer": "sgd", "learning_rate": 3.0},
    **{"batch_size": 0, "local_epochs": 1, "num_rounds": 6, "precision": "float64"},
    **PLATEAU,
}


def columns(directory: Path, *keys: str) -> list[list[Any]]:
    return [[line[key] for line in metrics(directory)] for key in keys]


@pytest.mark.parametrize("method", ["supervised", "server-only"])
def test_a_plain_loop_with_these_step_sizes_gives_the_same(settings: Settings, method: str) -> None:
    config = settings(**{**WILD, "method": method, "server_fraction": 0.3})
    directory = train(config, 1)
    losses, factors = columns(directory, "validation_loss", "rate_factor")
    assert factors == [plateau(dict(enumerate(losses[:number])), 1) for number in range(6)]
    assert len(set(factors)) > 2

    split, model = split_of(config, 1), fresh(config)
    rows = split.clients[0].points if method == "supervised" else split.server
    for number, factor in enumerate(factors):
        step(model, np.unique(rows), 3.0 * factor)
        assert losses[number] == pytest.approx(loss_of(model, split.validation).item(), rel=1e-6)
    assert_ends_as(directory, model)


def test_a_resumed_run_ends_as_an_uninterrupted_one(settings: Settings) -> None:
    plan = {**WILD, "evaluate_every": 2}
    whole = train(settings(**plan), 2)
    directory = cut_off(settings(**plan), 2, call=6)  # hello, prepare and four rounds are over
    assert metrics(whole)[4]["rate_factor"] < 1
    assert_same_run(resume(directory, 2), whole)
    # One that had fewer rounds at first, of which the last was evaluated out of turn.
    shorter = train(settings(**{**plan, "num_rounds": 3}), 2)
    train(resolve({"resume": str(shorter), "num-rounds": 6}, Path.cwd()), 2)
    assert columns(shorter, "rate_factor") == columns(whole, "rate_factor")


def test_it_needs_labels_at_the_server(settings: Settings) -> None:
    with refuses("setting-needs-labels", setting="learning-rate-schedule"):
        train(settings(**WILD, validation_fraction=0.0), 2)


# Clients that count themselves

OWN = {"learning_rate_schedule": "client-plateau"}


def plain_averaging(
    config: RunConfig, samples: list[list[int]], losses: list[float]
) -> tuple[nn.Module, list[list[float]]]:
    """Federated averaging whose clients count by hand the losses of the models they are sent.

    Returns
    -------
    The last model, and the factor of every client's step in every round.
    """
    split, model = split_of(config, 4), fresh(config)
    seen: dict[int, list[float]] = {}
    factors: list[list[float]] = []
    for number, sample in enumerate(samples, start=1):
        models, used = [copy.deepcopy(model) for _ in sample], []
        for client, local in zip(sample, models, strict=True):
            if client in seen:
                seen[client].append(losses[number - 2])
            used.append(plateau(dict(enumerate(seen.setdefault(client, []))), 1))
            points = np.unique(split.clients[client].points)
            step(local, points, config.learning_rate * used[-1])
        model.load_state_dict(mean_state(models))
        factors.append(used)
    return model, factors


def samples_of(config: RunConfig, clients: int, rounds: int) -> list[list[int]]:
    count = round(config.fraction_train * clients)
    drawn = [stream(config.seed, "sample", number) for number in range(1, rounds + 1)]
    return [sorted(rng.choice(clients, count, replace=False).tolist()) for rng in drawn]


def test_a_client_divides_its_own_step_by_the_losses_that_it_was_told(settings: Settings) -> None:
    config = settings(**{**WILD, **OWN, "num_rounds": 8, "fraction_train": 0.5})
    directory = train(config, 4)
    (losses,) = columns(directory, "validation_loss")
    model, factors = plain_averaging(config, samples_of(config, 4, 8), losses)
    # Clients of one round differ, so one counter for all would not do.
    assert any(len(set(used)) > 1 for used in factors)
    assert_ends_as(directory, model)
    assert all("rate_factor" not in line for line in metrics(directory))


@pytest.mark.parametrize(
    "options",
    [
        {"method": "supervised"},
        {
            **{"method": "fedmatch", "fedmatch.l2-weight": 0.0, "ssl.supervised-weight": 1.0},
            "learning_rate": 1.0,
        },
    ],
    ids=lambda options: options["method"],
)
def test_clients_that_count_themselves_go_on_counting_when_a_run_resumes(
    settings: Settings, options: dict[str, Any]
) -> None:
    plan = {**WILD, **OWN, **options, "fraction_train": 0.5, "evaluate_every": 2, "num_rounds": 8}
    whole = train(settings(**plan), 4)
    assert_same_run(resume(cut_off(settings(**plan), 4, call=6), 4), whole)
    # Neither one counter for all nor none gives the same model.
    shared = {**plan, "learning_rate_schedule": "plateau"}
    constant = {**plan, "learning_rate_schedule": "constant", "learning_rate_patience": 5}
    for other in (shared, constant):
        assert not same(train(settings(**other), 4), whole)
