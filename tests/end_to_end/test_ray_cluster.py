"""A simulation on a Ray cluster that runs already."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.test_ray import QUICK, fedul
from tests.end_to_end.test_ray import in_process as ten_clients
from tests.support.runs import assert_same_run

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def cluster() -> Iterator[str]:
    """Address of a cluster of two machines with a core each, both on this one."""
    from ray.cluster_utils import Cluster

    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        machines.add_node(num_cpus=1)
        yield machines.address
    finally:
        machines.shutdown()


def test_given_a_cluster_then_the_numbers_are_those_of_here(cluster: str, tmp_path: Path) -> None:
    options = ("--engine", "ray", "--ray-address", cluster, "--output", "result")
    done = fedul("run", "-c", QUICK, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_same_run(tmp_path / "result", ten_clients(tmp_path, 2))
    assert [path.name for path in tmp_path.glob("fedul-*")] == []  # the SuperLink's home
