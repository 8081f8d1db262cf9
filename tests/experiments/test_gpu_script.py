"""experiments/gpu.py on the miniature table: what fits into the time runs, and the rest resumes."""

import json
from pathlib import Path

from tests.support.digits_table import stored_runs
from tests.support.files_of_code import module_of_file

ROOT = Path(__file__).parents[2]
script = module_of_file(ROOT / "experiments" / "gpu.py")
PLAN = [
    script.Part("mini/table-1", ["M=12"], ["FedUL"], [1]),
    script.Part("mini/table-1", seeds=[0]),
]
OPTIONS = ["--device", "cpu", "--jobs", "1", "--experiments", "experiments"]


def test_cells_come_by_priority(digits_table: Path) -> None:
    order = [
        (cell.column, cell.row, cell.seed)
        for cell in script.cells(PLAN, Path("experiments"), False)
    ]
    assert order == [
        ("M=12", "FedUL", 1),
        *(("M=10", row, 0) for row in ("FedUL", "all labels")),
        *(("M=12", row, 0) for row in ("FedUL", "all labels")),
    ]


def test_runs_that_do_not_fit_follow_another_time(digits_table: Path) -> None:
    first, second = PLAN[0], script.Part("mini/table-1", ["M=10"], ["FedUL"], [0])
    script.main([*OPTIONS, "--minutes", "0"], [first])
    assert not Path("results").exists()
    script.main([*OPTIONS, "--minutes", "5", "--commit", "0" * 40], [first])
    assert [(run["row"], run["seed"]) for run in stored_runs()] == [("FedUL", 1)]
    before = stored_runs()[0]
    assert before["commit"]
    # The one that has finished is not run again.
    script.main([*OPTIONS, "--minutes", "5"], [first, second])
    runs = stored_runs()
    assert [(run["column"], run["seed"]) for run in runs] == [("M=10", 0), ("M=12", 1)]
    assert json.dumps(runs[1]["date"]) == json.dumps(before["date"])
