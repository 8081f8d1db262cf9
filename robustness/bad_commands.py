"""Inputs that other commands than ``run`` cannot use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from robustness.bad_words import LONG, SURROGATE, UNICODE, check, texts


def predict_inputs() -> Iterator[list[str]]:
    def predict(model: str, images: str, *more: str) -> list[str]:
        return ["predict", "--model", model, "--input", images, *more]

    for name in texts(
        """
        config-deep | config-list | config-half | config-nul | config-none | config-settings |
        config-empty | config-latin | config-model | config-model-list | config-exits | config-shape
        | config-huge-shape | config-classes | config-true | config-prior | model-none | model-empty
        | model-half | model-huge-header | model-junk | model-fifo | model-folder | model-nan |
        model-other | summary-deep | summary-list | summary-half
        """
    ):
        yield predict(f"runs-of-others/{name}", "images/good.npz", "--output", "p.csv")
    good = "runs-of-others/good"
    for name in texts(
        """
        junk.png | bomb.png | fifo.png | unknown.xyz | empty | none.npz | huge.npz | junk.npz |
        junk.parquet | fifo.npz | fifo.parquet | nowhere | folder.png | ../loop |
        ../data/fifo-image/train/a | ../data/loop-image | ../data/huge/train.npz
        """
    ):
        yield predict(good, f"images/{name}", "--output", "p.csv")
    for priors in (
        "nan",
        "",
        "0.5,0.5",
        "-1,2",
        "a",
        "1e308,1e308",
        ",".join(["nan"] * 10),
        "estimated",
    ):
        yield predict(good, "images/good.npz", "--output", "p.csv", "--priors", priors)
    for output in ("data", "nowhere/p.csv", "/dev/full", "loop", "a-file/p.csv", f"{LONG}.csv"):
        yield predict(good, "images/good.npz", "--output", output)
    for size in ("0", "-1", "many", "1e3"):
        yield predict(good, "images/good.npz", "--batch-size", size)
    yield predict("nowhere", "images/good.npz")
    yield predict("a-file", "images/good.npz")
    yield ["predict"]


def label_inputs() -> Iterator[list[str]]:
    quick = [
        "label",
        "--engine",
        "in-process",
        "--num-supernodes",
        "2",
        "-c",
        "xclp.secure='plaintext'",
    ]
    for text in texts(
        """
        method='fedul' | method='none' | labels.total=0 | labels.total=1000000000 | xclp.k=0 |
        xclp-predict.features='model' | xclp-predict.features='no' | xclp.alpha=1.0
        | xclp.recipe='no' | xclp-predict.groups=0 | xclp-predict.groups=1000 | xclp.secure='none' |
        num-rounds=0 |
        dataset='data/huge' | dataset='data/no-labels' | output='a-file' | xclp.labels-epsilon=-1
        """
    ):
        yield [*quick, "-c", text]
    for model in texts(
        """
        nowhere | a-file | data | runs-of-others/config-deep | runs-of-others/config-empty
        """
    ):
        yield [*quick, "--model", model]
    for model in ("model-none", "model-half", "model-nan", "model-other", "config-model-list"):
        yield [*quick, "--model", f"runs-of-others/{model}"]


def report_inputs() -> Iterator[list[str]]:
    for name in texts(
        """
        config-deep | config-list | config-half | config-nul | config-none | config-settings |
        config-latin | summary-deep | summary-list | summary-half | federation-deep |
        federation-list | federation-half | federation-nul | environment-deep | environment-list |
        environment-half | metrics-junk | metrics-nul | metrics-deep | metrics-round | metrics-huge
        | metrics-fifo | summary-nul
        """
    ):
        yield ["report", f"runs-of-others/{name}", "--output", "r.html"]
    for place in ("nowhere", "a-file", "data", "loop", "images/empty"):
        yield ["report", place]
    for output in ("data", "nowhere/r.html", "/dev/full", "loop", "a-file/r.html"):
        yield ["report", "runs-of-others/good", "--output", output]
    yield ["report"]


def compare_inputs() -> Iterator[list[str]]:
    quick = [
        "compare",
        "--engine",
        "in-process",
        "--num-supernodes",
        "2",
        "-c",
        "model='mlp' num-rounds=1",
    ]
    for more in (
        ["--methods", "fedul,nope"],
        ["--methods", ""],
        ["--methods", ",,"],
        ["--methods", "fedul,fedul"],
        ["--methods", "fedul", "--runs", "runs.toml"],
        [],
        *(
            ["--runs", f]
            for f in ("nowhere.toml", "folder.toml", "fifo.toml", "binary.toml", "deep.toml")
        ),
        *(
            ["--runs", f]
            for f in ("empty.toml", "runs-list.toml", "loop.toml", "a-file", "latin.toml")
        ),
        *(
            ["--methods", "fedul", "--seeds", s]
            for s in ("", "a", "0,0", "-1", "4294967296", "1.5", ",", "1,,2")
        ),
        *(
            ["--methods", "fedul", "-c", t]
            for t in ("seed=1", "output='x'", "no-such=1", "device='cuda'")
        ),
        *(["--methods", "fedul", "--output", o] for o in ("a-file", "a-file/x", "/proc/x", "loop")),
        *(
            ["--methods", "fedul", "--tuned", f]
            for f in texts(
                """
                nowhere.json | deep.json | text.json | nul.json | folder.toml | fifo.toml
                """
            )
        ),
        ["--methods", "fedul", "-c", "dataset='data/huge'"],
        ["--methods", "fedul", "-c", "model='own_exits:f'"],
        ["--methods", "fedul", "-c", "model='lenett'"],
    ):
        yield [*quick, *more]


def tables_inputs() -> Iterator[list[str]]:
    home = Path(__file__).parents[1]
    of_tables = ["--experiments", str(home / "experiments"), "--results", "results-here"]
    for command in ("reproduce", "tune"):
        for table in texts(
            """
            {EMPTY} | fedul | fedul/table-99 | ../fedul/table-1 | /etc/passwd | {LONG} |
            fedul/table-1.toml | {SURROGATE}
            """
        ):
            yield [command, table, *of_tables]
        for more in (
            *(["--rows", "nope"], ["--rows", ""], ["--columns", "nope"], ["--columns", ","]),
            *(
                ["--dataset", "x"],
                ["--dataset", "a=nowhere"],
                ["--dataset", "=x"],
                ["--device", "tpu"],
            ),
            *(["--experiments", "nowhere"], ["--experiments", "data"], ["--results", "a-file"]),
        ):
            yield [command, "fedul/table-1", "--quick", *of_tables, *more]
        yield [command]
    for more in (
        *(["--seeds", ""], ["--seeds", "x"], ["--print", "nope"], ["--print", ""]),
        *(["--list"], ["--tuned"], ["--print", "a", "--tuned"]),
    ):
        yield ["reproduce", "fedul/table-1", "--quick", *of_tables, *more]
    for more in (
        *(["--trials", "0"], ["--seed", "-1"], ["--criterion", "test"], ["--jobs", "0"]),
        *(["--search", "nowhere.toml"], ["--search", "deep.toml"], ["--search", "fifo.toml"]),
        *(
            ["--search", "empty.toml"],
            ["--runs", "runs.toml"],
            ["-c", "seed=1"],
            ["--num-supernodes", "2"],
        ),
    ):
        yield ["tune", "fedul/table-1", "--quick", *of_tables, *more]
    yield ["tune", "--runs", "fifo.toml"]
    yield ["tune", "--runs", "runs-list.toml"]
    yield ["tune", "--runs", "runs.toml", "--quick"]


def deploy_inputs() -> Iterator[list[str]]:
    two = ("--owners", "2")
    for more in (
        *(
            (*two, "--address", a)
            for a in ("", ":", "host:", "host:0", "host:70000", "host:x", "a b", "http://x")
        ),
        *(
            (*two, "--address", a)
            for a in ("[::1", "-x", "host:-1", UNICODE, SURROGATE, LONG, "a;rm -rf /", "$(x)")
        ),
        *(("--address", "h", "--owners", n) for n in ("0", "-1", "x", "1000000000000", "1.5")),
        *(
            ("--address", "h", "--owner", n)
            for n in ("", "../x", "a/b", ".", "..", LONG, "a b", UNICODE, SURROGATE, "-x")
        ),
        ("--address", "h", "--owner", "a", "--owner", "a"),
        ("--address", "h", "--owner", "a", *two),
        ("--address", "h"),
        two,
        *(
            (*two, "--address", "h", "--days", d)
            for d in ("0", "-1", "1000000000", "x", "100000000000000000000")
        ),
        *((*two, "--address", "h", "--also", a) for a in ("", "a b", ":", LONG)),
        *((*two, "--address", "h", "--listen", a) for a in ("name", "", "1.2.3.4:x", "999.1.1.1")),
        *(
            (*two, "--address", "h", "--public-key", k)
            for k in texts(
                """
                x | owner-0=nowhere | owner-0=a-file | owner-9=key.pub | owner-0=key.pub |
                owner-0=fifo.toml | owner-0=data | =
                """
            )
        ),
        (*two, "--address", "h", "--insecure", "--public-key", "owner-0=key.pub"),
    ):
        yield ["deploy", "init", "new-consortium", *more]
    for place in ("data", "a-file", "a-file/x", "/proc/x", "loop"):
        yield ["deploy", "init", place, "--address", "h", *two]
    yield ["deploy", "init"]
    for node in (
        *texts(
            """
            {EMPTY} | x | data | data= | data='nowhere' | data='a-file' | data='loop' | data=7 |
            nodata='x'
            """
        ),
        *("partition-id=-1", "partition-id=3 num-partitions=2", "partition-id='x'", "format='csv'"),
        *texts(
            """
            data='owners/sets' format='no' | data='owners/points' | data='images' | data='data/good'
            """
        ),
        *("nowhere.toml", "deep.toml", "fifo.toml", "folder.toml", f"data='/{SURROGATE}'"),
        *("data='owners/sets' known-labels='x.csv'"),
    ):
        yield check(node)
    for text in texts(
        """
        method='nope' | no-such=1 | model='lenett' | method='own_exits:f' | method='xclp'
        """
    ):
        yield check("data='owners/sets'", text)
    sets = ("--node-config", "data='owners/sets'")
    for more in (
        *(
            ("--class-names", "a,b"),
            ("--input-shape", "8x8"),
            ("--class-names", "", "--input-shape", ""),
        ),
        *(
            ("--class-names", "sound,ill", "--input-shape", s)
            for s in ("0x0x1", "8x8x2", "x", "8x8x1x1")
        ),
        ("--class-names", "sound,ill", "--input-shape", "99999999x99999999x3"),
        ("--class-names", "sound,sound", "--input-shape", "8x8x1"),
    ):
        yield ["deploy", "check", *sets, *more]
