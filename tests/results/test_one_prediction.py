"""A row has one prediction: alone, among others, in any order of rows and columns, in any file."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import fedul_flwr as ff
from fedul_flwr.data.columns import read_columns
from fedul_flwr.results.export import export
from fedul_flwr.results.model_file import pack
from tests.support.points import load_points
from tests.support.refusals import refuses

ROW = st.fixed_dictionaries(
    {
        "number": st.none() | st.floats(-50, 50).map(lambda value: round(value, 3)),
        "whole": st.none() | st.integers(-(10**6), 10**6),
        "truth": st.none() | st.booleans(),
        "sex": st.none() | st.sampled_from(["f", "m"]),
        "code": st.sampled_from(["007", "012", "100"]),
        "grade": st.none() | st.sampled_from(["1", "2", "3"]),
        "constant": st.just(5),
        "truthful": st.sampled_from(["True", "False"]),
    }
)


def training() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    count = 80
    frame = pd.DataFrame(
        {
            "number": rng.normal(3, 10, count),
            "whole": pd.array(rng.integers(0, 1000, count), dtype="Int64"),
            "truth": pd.array(rng.random(count) < 0.7, dtype="boolean"),
            "sex": rng.choice(["f", "m"], count, p=[0.3, 0.7]),
            "code": rng.choice(["007", "012", "100"], count),
            "grade": pd.Categorical(rng.choice(["1", "2", "3"], count)),
            "constant": 5,
            "truthful": rng.choice(["True", "False"], count),
            "label": rng.choice(["ill", "sound"], count),
        }
    )
    for place, name in enumerate(["number", "whole", "truth", "sex", "grade"]):
        frame.loc[rng.random(count) < 0.1 + 0.02 * place, name] = None
    return frame


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ff.Result:
    place = tmp_path_factory.mktemp("runs") / "run"
    return ff.simulate(
        "supervised",
        training(),
        clients=2,
        rounds=2,
        model="mlp",
        missing="mean",
        output=place,
        engine="in-process",
    )


def as_frame(rows: list[dict[str, Any]], kinds: int) -> pd.DataFrame:
    """The rows with other types, by the bits of ``kinds``; the values are the same."""
    frame = pd.DataFrame(rows)
    frame["whole"] = frame["whole"].astype("float64" if kinds & 1 else "Int64")
    frame["truth"] = frame["truth"].astype("boolean" if kinds & 2 else object)
    if kinds & 4:
        frame["sex"] = frame["sex"].astype("category")
    if kinds & 8:
        frame["grade"] = frame["grade"].astype("float64").astype("Int64")
    if kinds & 16:
        frame["constant"] = frame["constant"].astype("float64")
    if kinds & 32:
        frame["truthful"] = frame["truthful"] == "True"
    return frame


@hypothesis_settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(ROW, min_size=1, max_size=6), st.integers(0, 63), st.data())
def test_given_any_rows_then_each_is_predicted_as_if_alone(
    run: ff.Result, rows: list[dict[str, Any]], kinds: int, data: st.DataObject
) -> None:
    alone = np.concatenate([run.predict_proba(as_frame([row], 0)) for row in rows])
    together = as_frame(rows, kinds)
    np.testing.assert_allclose(run.predict_proba(together), alone, atol=1e-6)
    order = data.draw(st.permutations(range(len(rows))))
    columns = data.draw(st.permutations(list(together.columns)))
    moved = together.iloc[list(order)][list(columns)]
    np.testing.assert_allclose(run.predict_proba(moved), alone[list(order)], atol=1e-6)


@hypothesis_settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(ROW, min_size=1, max_size=4), st.integers(0, 63))
def test_given_any_kind_of_file_then_its_vectors_are_those_of_the_frame(
    run: ff.Result, tmp_path: Path, rows: list[dict[str, Any]], kinds: int
) -> None:
    frame = as_frame(rows, kinds)
    predictor = run.predictor
    expected = run.predict_proba(frame)
    frame.to_csv(tmp_path / "p.csv", index=False)
    frame.to_parquet(tmp_path / "p.parquet")
    for suffix in ("csv", "parquet"):
        _, found = load_points(tmp_path / f"p.{suffix}", predictor.input_shape, predictor.table)
        np.testing.assert_allclose(predictor.predict_proba(found), expected, atol=1e-6)


def test_given_a_gap_then_the_training_fills_it_and_no_other_row(run: ff.Result) -> None:
    frame = training()
    columns = {column.name: column for column in read_columns(run.directory).columns}
    assert columns["sex"].fill == "m"
    assert columns["sex"].categories == ("f", "m")
    assert columns["truthful"].categories is None
    assert columns["grade"].categories == ("1", "2", "3")
    fill = columns["number"].fill
    assert isinstance(fill, float)
    assert abs(fill - frame["number"].mean()) < 1  # of the training split
    row = frame.iloc[[0]].drop(columns="label").assign(number=None, sex=None)
    other = row.assign(number=fill, sex="m")
    np.testing.assert_allclose(run.predict_proba(row), run.predict_proba(other), atol=1e-6)
    extreme = frame.drop(columns="label").assign(number=1e6, sex="f")
    together = run.predict_proba(pd.concat([row, extreme]))
    np.testing.assert_allclose(together[:1], run.predict_proba(row), atol=1e-6)


def test_given_an_exported_model_then_it_fills_gaps_alike(run: ff.Result, tmp_path: Path) -> None:
    frame = training().drop(columns="label").iloc[:5]
    predictor = run.predictor
    assert predictor.table.columns is not None
    from fedul_flwr.api.input_data import stored_points

    filled = stored_points(frame, predictor.input_shape, predictor.table)
    with_gaps = np.array(filled)
    places = predictor.table.columns.feature_slices
    with_gaps[0, places["number"]] = np.nan
    with_gaps[0, places["sex"]] = np.nan
    row = frame.iloc[[0]].assign(number=None, sex=None)
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(export(run.directory, tmp_path / "m.onnx"))
    [found] = session.run(None, {"points": with_gaps})
    np.testing.assert_allclose(found[:1], run.predict_proba(row), atol=1e-5)
    np.testing.assert_allclose(found[1:], run.predict_proba(frame.iloc[1:]), atol=1e-5)


def test_given_the_page_then_a_program_without_this_package_predicts_the_same(
    run: ff.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    page = Path(__file__).parents[2] / "docs" / "running.md"
    [example] = re.findall(r"```python\n(import json\n.*?)```", page.read_text(), re.DOTALL)
    packed = pack(run.directory, tmp_path / "patients.zip")
    assert export(packed) == tmp_path / "patients.onnx"
    monkeypatch.chdir(tmp_path)
    frame = training().drop(columns="label").iloc[:20]
    cells = frame.astype(object).to_dict("records")
    rows = [{k: None if pd.isna(v) else str(v) for k, v in row.items()} for row in cells]
    assert any(None in row.values() for row in rows)
    for row in rows:  # truth values are numbers
        for name in ("truth", "truthful"):
            row[name] = {"True": "1", "False": "0", None: None}[row[name]]
    values: dict[str, Any] = {"rows": rows}
    exec(example, values)
    np.testing.assert_allclose(values["probabilities"], run.predict_proba(frame), atol=1e-5)
    assert values["about"]["features"] == list(run.predictor.table.columns.features)


def test_given_a_new_category_then_a_prediction_is_refused(run: ff.Result) -> None:
    row = training().drop(columns="label").iloc[[0]].assign(sex="x")
    with refuses("category-unknown"):
        run.predict(row)
