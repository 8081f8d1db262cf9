"""What a node config may hold, its limits, and every refusal."""

from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.config.node_config import POINT_FORMATS, SET_FORMATS, NodeConfig
from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.errors import OwnDataError
from tests.support.refusals import refuses


@pytest.mark.parametrize(
    ("values", "code", "about"),
    [
        ({"dta": "/d"}, "unknown-name", {"name": "dta"}),
        ({"data": 3}, "setting-wrong-type", {"setting": "data"}),
        ({"partition-id": "1"}, "setting-wrong-type", {"setting": "partition-id"}),
        ({"partition-id": -1}, "setting-out-of-range", {"setting": "partition-id"}),
        ({"partition-id": 3, "num-partitions": 3}, "settings-contradict", {}),
        ({"data": "/d", "format": "folders"}, "setting-not-a-choice", {"setting": "format"}),
        ({"format": "files"}, "settings-contradict", {}),
        ({"known-labels": "/k"}, "settings-contradict", {}),
        ({"allow-priors": True}, "settings-contradict", {}),  # a limit without data
    ],
)
def test_what_is_refused(values: dict[str, Any], code: str, about: dict[str, str]) -> None:
    with refuses(code, OwnDataError, **about) as error:
        NodeConfig.parse(values)
    assert str(error.value).startswith(("Node config ", "Unknown node config "))


def test_formats_that_a_method_does_not_read() -> None:
    sets, files = NodeConfig(data="/d", format="sets"), NodeConfig(data="/d", format="files")
    sets.expect_format("fedul", SET_FORMATS)
    files.expect_format("xclp", POINT_FORMATS)
    for found in (SET_FORMATS, POINT_FORMATS):
        NodeConfig(data="/d").expect_format("any", found)
    with refuses("setting-not-a-choice", OwnDataError, setting="format"):
        sets.expect_format("xclp", POINT_FORMATS)
    with refuses("setting-not-a-choice", OwnDataError, setting="format"):
        files.expect_format("fedul", SET_FORMATS)
    labeled = NodeConfig(data="/d", known_labels="/k")
    labeled.expect_format("xclp", POINT_FORMATS)
    with refuses("setting-without-effect", OwnDataError, setting="known-labels"):
        labeled.expect_format("fedul", SET_FORMATS)


XCLP: dict[str, Any] = {"method": "xclp"}
CLIPPED: dict[str, Any] = {"dp.clipping": "client", "dp.norm": 0.5, "dp.noise-multiplier": 1.5}


def settings(overrides: dict[str, Any], directory: Path) -> RunConfig:
    return resolve({**overrides, "output": str(directory / "run")}, directory)


def node(**limits: Any) -> NodeConfig:
    values = {key.replace("_", "-"): value for key, value in limits.items()}
    return NodeConfig.parse({"data": "/data", "partition-id": 2, **values})


@pytest.mark.parametrize("secure", ["paillier", "ot"])
@pytest.mark.parametrize("method", ["xclp", "xclp-predict"])
def test_protocols_for_honest_clients_are_refused(tmp_path: Path, method: str, secure: str) -> None:
    run = settings({"method": method, "xclp.secure": secure}, tmp_path)
    for owner in (node(), node(allow_plaintext=True, allow_known_seed=True)):
        with refuses("setting-for-simulations", setting="xclp.secure"):
            owner.check_run(run)


BEYOND: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({}, {**XCLP, "xclp.secure": "plaintext"}, "xclp.secure", "allow-plaintext"),
    ({}, {**XCLP, "xclp.codes-seed": "run"}, "xclp.codes-seed", "allow-known-seed"),
    (
        {"min_labeled_clients": 5},
        {**XCLP, "xclp.min-labeled-clients": 4},
        "xclp.min-labeled-clients",
        "min-labeled-clients",
    ),
    ({}, {"fedul.share-priors": True}, "fedul.share-priors", "allow-priors"),
    ({"allow_class_shares": False}, {"test-prior": "sets"}, "test-prior", "allow-class-shares"),
    ({}, {"standardize": "federation"}, "standardize", "allow-column-means"),
    ({"allow_methods": "fedpl, xclp"}, {}, "method", "allow-methods"),
    ({"max_codes_epsilon": 8.0}, XCLP, "xclp.codes-epsilon", "max-codes-epsilon"),
    (
        {"max_labels_epsilon": 1.0},
        {"method": "xclp-predict", "xclp.labels-epsilon": 2.0},
        "xclp.labels-epsilon",
        "max-labels-epsilon",
    ),
    ({"max_clipping_norm": 1.0}, {}, "dp.clipping", "max-clipping-norm"),
    ({"max_clipping_norm": 0.4}, CLIPPED, "dp.norm", "max-clipping-norm"),
    # FedMatch has no differential privacy at all.
    ({"max_clipping_norm": 1.0}, {"method": "fedmatch"}, "dp.clipping", "max-clipping-norm"),
    ({"min_noise_multiplier": 2.0}, CLIPPED, "dp.noise-multiplier", "min-noise-multiplier"),
]


@pytest.mark.parametrize(("limits", "run", "setting", "limit"), BEYOND)
def test_given_a_run_beyond_a_limit_when_checked_then_setting_and_limit_are_named(
    limits: dict[str, Any], run: dict[str, Any], setting: str, limit: str, tmp_path: Path
) -> None:
    with refuses("owner-does-not-allow", match=f"{setting} = .*{limit} = ?") as refused:
        node(**limits).check_run(settings(run, tmp_path))
    assert not isinstance(refused.value, OwnDataError)  # the server is told the whole sentence


@pytest.mark.parametrize(
    ("limits", "run"),
    [
        ({}, {}),
        ({}, XCLP),
        ({}, {"method": "local-lp"}),  # a table `xclp` of its own, nothing of which leaves a client
        ({"allow_plaintext": True}, {**XCLP, "xclp.secure": "plaintext"}),
        ({"min_labeled_clients": 1}, {**XCLP, "xclp.min-labeled-clients": 1}),
        ({"allow_column_means": True}, {"standardize": "federation"}),
        ({}, {"standardize": "federation", "standardize-sum": "masked"}),
        ({"max_clipping_norm": 0.5, "min_noise_multiplier": 1.5}, CLIPPED),
        ({"min_noise_multiplier": 1.5}, {**CLIPPED, "dp.clipping": "server"}),
        # Nobody trains, so there is no update to clip.
        ({"max_clipping_norm": 1.0, "min_noise_multiplier": 1.0}, {"method": "xclp-predict"}),
        (
            {"max_codes_epsilon": 8.0, "max_labels_epsilon": 2.0},
            {"method": "xclp-predict", "xclp.codes-epsilon": 8.0, "xclp.labels-epsilon": 1.0},
        ),
    ],
)
def test_runs_within_limits(limits: dict[str, Any], run: dict[str, Any], tmp_path: Path) -> None:
    node(**limits).check_run(settings(run, tmp_path))


def test_given_a_method_of_ones_own_when_not_named_then_it_is_refused(tmp_path: Path) -> None:
    run = settings({}, tmp_path).model_copy(update={"method": "tests.support.own:METHOD"})
    with refuses("owner-does-not-allow", limit="allow-methods"):
        node().check_run(run)


@pytest.mark.parametrize("key", ["method", "model", "features", "base"])
def test_given_an_unlisted_module_then_its_settings_are_refused_unparsed(key: str) -> None:
    flat = {key: "no_such_module_anywhere:NAME"}
    with refuses("owner-does-not-allow", limit="allow-methods"):
        node().check_modules(flat)
    node(allow_methods="fedul, no_such_module_anywhere:NAME").check_modules(flat)
    # Built-in names with a colon are no modules.
    node().check_modules({"model": "torchvision:resnet18"})
    named = {"features": "huggingface:owner/name"}
    node(allow_methods="fedul,huggingface:owner/name").check_modules(named)
    with refuses("owner-does-not-allow", limit="allow-methods"):
        node().check_modules(named)
