"""The methods on one page give the product's weights: same data, same seed, two rounds."""

import copy
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp.strategy import FedAvg
from torch import nn

import fedul_flwr as ff
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import build_split
from fedul_flwr.engine.in_process import InProcessGrid, task_identity
from fedul_flwr.learning.batches import augmented, to_input
from fedul_flwr.learning.closed_form import (
    SoftSums,
    default_shrinkage,
    fit_gaussians,
    linear_head,
    posteriors_of_sets,
    shrunk_spectrum,
    soft_sums,
)
from fedul_flwr.learning.known_error import LeaveOneOut, ShareSums, known_error
from fedul_flwr.learning.plan import local_plan
from fedul_flwr.learning.views import augmented_view, strong_view
from fedul_flwr.models import build_model
from fedul_flwr.propagation.codes import SEED_BYTES, projections
from tests.support.files_of_code import module_of_file
from tests.support.runs import last_model, train
from tests.support.settings import Settings


def network(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(input_shape[0], 7), nn.Tanh(), nn.Linear(7, num_classes))


EXAMPLES = Path(__file__).parents[2] / "examples"
PRIORS = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7]])
OPTIONS = {"epochs": 2, "batch_size": 8, "learning_rate": 0.01}
SHAPE: dict[str, Any] = {"model": network, "input_shape": (4,), "classes": 3}
SETTINGS = {"local_epochs": 2, "batch_size": 8, "learning_rate": 0.01}


def example(name: str) -> ModuleType:
    return module_of_file(EXAMPLES / f"{name}.py")


def sets_of(client: int) -> list[Any]:
    """Three sets of different sizes."""
    rng = np.random.default_rng(client)
    sizes = 12 + 5 * np.arange(3)
    return [rng.normal(m, 1, (int(n) + client, 4)).astype(np.float32) for m, n in enumerate(sizes)]


def local_draws(client: int, number: int) -> np.random.Generator:
    """The product's random numbers of a client in a round; it draws a seed for dropout first."""
    rng = stream(0, "local", number, client)
    rng.integers(2**63)
    return rng


def run(strategy: Any, app: Any, model: nn.Module, clients: int) -> dict[str, torch.Tensor]:
    with task_identity():
        grid = InProcessGrid(app, clients, {})
        first = ArrayRecord(model.state_dict())
        return dict(strategy.start(grid, first, num_rounds=2).arrays.to_torch_state_dict())


def test_given_fedul_then_its_page_has_the_products_weights() -> None:
    def client(context: Context) -> ff.FedULClient:
        return ff.FedULClient(sets_of(int(context.node_config["partition-id"])), PRIORS)

    page = example("fedul_from_scratch")
    torch.manual_seed(0)
    model = network((4,), 3)
    # The page's mean counts clients equally; Flower's FedAvg counts them by their points.
    settings = {**SETTINGS, "test_prior": "uniform", "client_weights": "uniform"}
    strategy = ff.FedUL(FedAvg(), **SHAPE, settings=settings)
    product = run(strategy, ff.make_client_app(client), model, clients=2)

    pi = torch.full((3,), 1 / 3, dtype=torch.float64)
    for number in (1, 2):
        updates = []
        for position in (0, 1):
            sets = sets_of(position)
            n = torch.tensor([len(points) for points in sets])
            m = torch.repeat_interleave(torch.arange(3), n)
            local = copy.deepcopy(model)
            log_Q = page.log_transition(torch.from_numpy(PRIORS), n, pi).float()
            x = torch.from_numpy(np.concatenate(sets))
            page.train_client(local, x, m, log_Q, local_draws(position, number), **OPTIONS)
            updates.append(local.state_dict())
        model.load_state_dict(page.federated_averaging(updates))
    torch.testing.assert_close(product, dict(model.state_dict()), atol=1e-6, rtol=0)


def points_of(client: int) -> tuple[np.ndarray, np.ndarray]:
    """40 points of three classes, 10 of them with a label."""
    rng = np.random.default_rng(10 + client)
    y = rng.integers(0, 3, 40)
    x = (rng.normal(0, 1, (40, 4)) + 2 * np.eye(3, 4)[y]).astype(np.float32)
    return x, np.where(rng.permutation(40) < 10, y, -1)


def seeded_draws(client: int, number: int) -> np.random.Generator:
    """As :func:`local_draws`, with torch's generator from that seed, which makes strong views."""
    torch.manual_seed(int(stream(0, "local", number, client).integers(2**63)))
    return local_draws(client, number)


def test_given_fedmatch_then_its_page_has_the_products_weights() -> None:
    def client(context: Context) -> ff.FedMatchClient:
        return ff.FedMatchClient(*points_of(int(context.node_config["partition-id"])))

    page = example("fedmatch_from_scratch")
    torch.manual_seed(0)
    model = network((4,), 3)
    # Points are sure and unsure, changes and psi above and below; helpers come in round 2.
    fedmatch = {
        **{"threshold": 0.4, "consistency_weight": 0.5, "helper_interval": 2},
        **{"difference_threshold": 1e-3, "psi_cutoff": 0.02},
    }
    settings = {
        **{"local_epochs": 2, "batch_size": 4, "optimizer": "sgd", "learning_rate": 0.02},
        **{"ssl": {"unlabeled_batch_size": 12}, "fedmatch": fedmatch},
    }
    strategy = ff.FedMatch(FedAvg(), **SHAPE, settings=settings)
    sigma = {name: weight.clone() for name, weight in model.state_dict().items()}
    product = run(strategy, ff.make_client_app(client), model, clients=4)

    clients = []
    for position in range(4):
        x, y = points_of(position)
        arrived = stream(0, "streaming", position).permutation(np.flatnonzero(y < 0))
        arrays = x[y >= 0], y[y >= 0], x[arrived]
        clients.append(tuple(torch.from_numpy(array) for array in arrays))
    noise = torch.from_numpy(stream(0, "noise").standard_normal((1, 4))).float()
    constants = page.Constants(
        **{"E": 2, "B_S": 4, "B_U": 12, "lambda_ICCS": 0.5, "tau": 0.4, "H": 2},
        **{"helper_interval": 2, "difference": 1e-3, "cutoff": 0.02},
    )

    def f(weights: Any, inputs: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, weights, (inputs,))

    first = [sigma, {name: 0.2 * weight for name, weight in sigma.items()}]
    *_, (sigma, psi) = page.run_server(
        f, first, clients, page.strong_view, noise, seeded_draws, 2, constants
    )
    theta = dict(page.theta(sigma, psi, constants.cutoff))
    torch.testing.assert_close(product, theta, atol=1e-6, rtol=0)


def test_given_xclp_then_its_page_has_the_products_labels_confidences_and_weights() -> None:
    def client(context: Context) -> ff.XCLPClient:
        return ff.XCLPClient(*points_of(int(context.node_config["partition-id"])))

    page = example("xclp_from_scratch")
    torch.manual_seed(0)
    model = network((4,), 3)
    # Of 70 neighbors some are not similar at all.
    graph = {"k": 70, "num_bits": 512, "alpha": 0.95}
    settings = {
        **{"local_epochs": 2, "batch_size": 4, "optimizer": "sgd", "learning_rate": 0.1},
        "semi": {"labels_only_rounds": 1},
        "xclp": {**graph, "recipe": "paper", "secure": "plaintext"},
    }
    strategy = ff.XCLP(FedAvg(), **SHAPE, settings=settings)
    first = {name: weight.clone() for name, weight in model.state_dict().items()}
    product = run(strategy, ff.make_client_app(client), model, clients=3)

    model.load_state_dict(first)
    x, y = zip(*(points_of(position) for position in range(3)), strict=True)
    seed = stream(0, "codes").bytes(SEED_BYTES)
    P = np.concatenate(list(projections(seed, 7, 512))).T
    y_hat, w = y, [(labels >= 0).astype(float) for labels in y]
    for number in (1, 2):
        if number == 2:
            V = [model[:-1](torch.from_numpy(points)).detach().numpy() for points in x]
            y_hat, w = page.xclp(V, y, 3, P, np.random.default_rng(5), k=70, alpha=0.95)
            text = {"power": 1.0, "class_scaling": False, "seed": seed}
            found = ff.label_propagation(np.concatenate(V), np.concatenate(y), **text, **graph)
            np.testing.assert_array_equal(found.labels, np.concatenate(y_hat))
            np.testing.assert_allclose(found.confidence, np.concatenate(w), rtol=0, atol=1e-6)
        updates = []
        for position in range(3):
            local = copy.deepcopy(model)
            page.train_client(
                *(local, torch.from_numpy(x[position]), y[position], y_hat[position], w[position]),
                local_draws(position, number),
                **{"epochs": 2, "batch_size": 4, "learning_rate": 0.1},
            )
            updates.append(local.state_dict())
        model.load_state_dict(
            {name: torch.stack([update[name] for update in updates]).mean(0) for name in first}
        )
    torch.testing.assert_close(product, dict(model.state_dict()), atol=1e-6, rtol=0)


def test_given_semifl_then_its_page_has_our_weights(settings: Settings) -> None:
    page = example("semifl_from_scratch")
    config = settings(
        **{"method": "semifl", "model": "mlp", "num_rounds": 3, "precision": "float32"},
        **{"points_per_client": 60, "server_fraction": 0.1, "scenario.labels-at": "server"},
        **{"local_epochs": 2, "server.epochs": 2, "batch_size": 8, "augment": "rotate"},
        **{"optimizer": "sgd", "learning_rate": 0.03, "momentum": 0.9, "weight_decay": 5e-4},
        **{"base": "fedavgm", "fedavgm.server-momentum": 0.5, "semifl.threshold": 0.15},
    )
    product = last_model(train(config, 3))

    source, split = load_source("digits"), build_split(source_directory("digits"), 3, config)
    plan, c = local_plan(config), page.Constants(E=2, B=8, tau=0.15)
    model = build_model("mlp", source.input_shape, 10, config.seed)
    x = to_input(torch.from_numpy(np.asarray(source.train.inputs)))
    y = torch.from_numpy(np.asarray(source.train.labels))
    momenta, v, took_part = [None] * 4, {}, 0
    for number in (1, 2, 3):
        active = []
        for client, dealt in enumerate(split.clients):
            points = dealt.points[stream(0, "streaming", client).permutation(len(dealt.points))]
            labeling = stream(0, "labeling-views", number, client)
            views = (
                lambda u, rng=labeling: augmented(u, plan, rng),
                augmented_view(config),
                strong_view(config, from_weak=True),
            )
            draws = seeded_draws(client, number)
            found, momenta[client] = page.run_client(
                *(model, momenta[client], x[points], views, draws, c)
            )
            active += [] if found is None else [found]
        model.load_state_dict(page.aggregate(model.state_dict(), active, v, c.beta_g))
        draws = stream(0, "server", number)
        draws.integers(2**63)
        momenta[3] = page.train_server(
            *(model, momenta[3], x[split.server], y[split.server]),
            *(lambda u, rng=draws: augmented(u, plan, rng), draws, c),
        )
        took_part += len(active)
    assert took_part > 5
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(torch.from_numpy(product[name]), weight, atol=1e-5, rtol=0)


def test_given_closed_form_then_its_page_has_the_products_head() -> None:
    page = example("closed_form_from_scratch")
    rng = np.random.default_rng(0)
    x, shares = rng.normal(size=(90, 4)), rng.dirichlet(np.ones(3), 9).repeat(10, axis=0)
    pi = np.full(3, 1 / 3)
    stated = [soft_sums(part, of, stated=True) for part, of in halves(x, shares)]
    head = linear_head(fit_gaussians(SoftSums.total(stated)), pi)
    of_page = page.head(
        *SoftSums.total(page.client_sums(*half, True) for half in halves(x, shares))
    )
    for ours, its in zip(head, of_page, strict=True):
        np.testing.assert_allclose(its, ours, rtol=1e-9)
    sets = np.arange(9).repeat(10)
    soft = posteriors_of_sets(x @ head[0].T + head[1], shares, pi, sets, np.zeros(9))
    np.testing.assert_allclose(page.posteriors(x, shares, sets, *of_page), soft, rtol=1e-5)
    refined = linear_head(fit_gaussians(soft_sums(x, soft, stated=False)), pi)
    for ours, its in zip(refined, page.head(*page.client_sums(x, soft, False)), strict=True):
        np.testing.assert_allclose(its, ours, rtol=1e-9)


def test_given_error_by_shares_then_its_page_has_the_products_numbers() -> None:
    page = example("error_by_shares_from_scratch")
    rng = np.random.default_rng(0)
    x, shares = rng.normal(size=(90, 4)), rng.dirichlet(np.ones(3), 9).repeat(10, axis=0)
    prior, sums = np.array([0.5, 0.3, 0.2]), soft_sums(x, shares, stated=True)
    gaussians = fit_gaussians(sums)
    part = default_shrinkage(gaussians)
    values, vectors = spectrum = shrunk_spectrum(gaussians, part)
    weight, _ = linear_head(gaussians, prior)
    one = LeaveOneOut.of(gaussians, sums.gram, prior, part, spectrum, rng)
    one = one._replace(sketch=vectors / np.sqrt(values) * 2)  # all four directions: exact lengths
    logits = one.logits(x, shares, weight, stated=True)
    np.testing.assert_allclose(page.without_each(x, shares, prior), logits, rtol=1e-9, atol=1e-9)
    said = logits.argmax(axis=1)
    wanted = known_error(ShareSums.of(shares, logits, shares), prior).right
    np.testing.assert_allclose(np.diag(page.confusion(shares, said)), wanted, atol=1e-9)
    by_shares, by_labels = page.main()
    assert abs(by_shares - by_labels) < 3


def halves(*arrays: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    return [tuple(array[start::2] for array in arrays) for start in (0, 1)]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *[("fedul", {}), ("fedmatch", {}), ("xclp", {"first": 0}), ("semifl", {})],
        ("closed_form", {}),
    ],
)
def test_given_digits_then_a_page_runs_as_it_is(
    name: str, options: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    error = example(f"{name}_from_scratch").main(rounds=1, **options)
    assert error < 0.7  # 0.9 by chance
    assert capsys.readouterr().out.startswith(f"round 1: test error {error:.1%}")


@pytest.mark.parametrize("name", [path.stem for path in sorted(EXAMPLES.glob("*_scratch.py"))])
def test_given_a_page_then_it_is_short_and_imports_nothing_of_ours(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) <= (200 if "fedmatch" in name else 150)
    assert "fedul_flwr" not in text
