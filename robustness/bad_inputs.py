"""Inputs that no command can use; paths are those of :mod:`robustness.bad_files`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from robustness import bad_commands
from robustness.bad_tables import FORMS
from robustness.bad_words import SURROGATE, check, texts


@dataclass(frozen=True)
class BadInput:
    """Arguments of ``fedul-flwr`` that must end in one sentence.

    Attributes
    ----------
    group : where the table of results counts it.
    """

    group: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        shown = (repr(a) if not a.isprintable() else shlex.quote(a) for a in self.arguments)
        return " ".join(a if len(a) < 200 else a[:200] + "…" for a in shown)


def bad_inputs() -> list[BadInput]:
    """All inputs, each once."""
    found = [
        BadInput(group, tuple(arguments))
        for group, inputs in (
            ("settings", _settings()),
            ("run", _run()),
            ("before", _before_start()),
            ("data", _data()),
            ("modules", _modules()),
            ("resume", _resume()),
            ("predict", bad_commands.predict_inputs()),
            ("label", bad_commands.label_inputs()),
            ("report", bad_commands.report_inputs()),
            ("compare", bad_commands.compare_inputs()),
            ("tables", bad_commands.tables_inputs()),
            ("deploy", bad_commands.deploy_inputs()),
        )
        for arguments in inputs
    ]
    return list({bad.arguments: bad for bad in found}.values())


def run(*settings: str, more: tuple[str, ...] = ()) -> list[str]:
    """A short run in this process with two clients."""
    quick = "model='mlp' num-rounds=1 local-epochs=1"
    pairs = [part for text in (quick, *settings) for part in ("-c", text)]
    return ["run", "--engine", "in-process", "--num-supernodes", "2", *pairs, *more]


def _settings() -> Iterator[list[str]]:
    """Every setting with a value of a wrong type, and the numbers that none takes."""
    from fedul_flwr.config.run_config import all_sections
    from fedul_flwr.config.shared import SharedSettings

    for table, kind in {"": SharedSettings, **all_sections()}.items():
        chosen = _choice(table)
        for name, field in kind.model_fields.items():
            key = f"{table}.{name}".lstrip(".").replace("_", "-")
            for value in _wrong(field.annotation):
                yield run(chosen, f"{key}={value}")


def _choice(table: str) -> str:
    """Settings with which a table has an effect."""
    from fedul_flwr.config.methods import METHODS
    from fedul_flwr.config.sections import SECTIONS
    from fedul_flwr.config.shared import BaseName

    if table in SECTIONS:
        return f"{'base' if table in get_args(BaseName) else 'partition'}='{table}'"
    for name, method in METHODS.items():
        if table in method.tables:
            return f"method='{name}'"
    return ""


def _wrong(kind: Any) -> tuple[str, ...]:
    if kind is bool:
        return ("1",)
    if kind is int:
        return ("'many'", "-7")
    if kind is float:
        return ("'much'", "nan", "-inf")
    if get_origin(kind) is Literal:
        return ("'no-such-choice'",)
    return ("7",)


def _run() -> Iterator[list[str]]:
    for text in texts(
        r"""
        seed | =1 | seed= | seed==1 | seed=1, | 'seed'=1 | seed=1=2 | seed = = | = | , | seed=0x |
        seed=1e | seed=-1 | seed=4294967296 | seed=1.0 | seed=true | seed=[1] | seed={{a=1}} |
        seed=2026-01-01 | seed={DIGITS} | a.b.c.d=1 | seed.x=1 | fedul=1 | {LONG}=1 | model='{LONG}'
        | model='{UNICODE}' | model='{SURROGATE}' | model='\u0000' | no-such=1 | Seed=1 |
        num_rounds=1 | fedul.no-such=1 | nosuch.k=1 | fedavg.eta=1 | output=''  output=7 |
        resume='nowhere' | resume=7 | tracking='wandb' | dataset='' | dataset='nowhere/at/all' |
        dataset='/dev/null' | dataset='a-file' | dataset='loop' | dataset='/{LONG}' |
        dataset='/{SURROGATE}' | dataset='~nobody/x' | test-prior='' | test-prior='a,b' |
        test-prior='nan,1' | test-prior='0.5,0.6' | test-prior='-1,2' | test-prior='1e308,1e308' |
        test-prior='1' | test-prior=',' | fedul.num-sets=9 | fedul.num-sets=1000000000 |
        fedul.num-sets=1000000000000000000 | fedul.num-sets-max=5 | fedul.heldout-fraction=1.0 |
        fedul.prior-noise=1e308 | points-per-client=1 | points-per-client=1000000000000000000 |
        image-size=1025 | validation-fraction=0.999999 | server-fraction=0.9 | client-threads=-1 |
        client-threads=1000000000 | client-threads=1000000000000000000000 |
        partition='dirichlet' dirichlet.min-points=1000000 |
        partition='pathological' pathological.classes-per-client=11 |
        partition='pathological' pathological.classes-per-client=100000000000000000000 |
        partition='shard' shard.shards-per-client=1000000000000 | partition='natural' |
        partition='natural' natural.column='no' | base='krum' | base='multikrum' | base='bulyan' |
        base='local' | base='fednova' | base='krum' krum.num-malicious-nodes=1000000000000000000000
        | base='fedtrimmedavg' fedtrimmedavg.beta=0.5 | optimizer='sgd' momentum=1.0 | momentum=0.5
        | learning-rate=0 | learning-rate=1e400 | init-scale=0 | init-scale=1e308 | init-scale=1e30
        | batch-size=-1 | num-rounds=0 | num-rounds=-1 | local-epochs=0 | fraction-train=0 |
        fraction-train=1.1 | start-from='nowhere' | start-from='a-file' | start-from='torchvision' |
        start-from='loop' | start-from='data' | start-from='runs-of-others/model-half' |
        start-from='/dev/zero' | start-from='runs-of-others/model-other' |
        start-from='runs-of-others/model-nan' | start-from='runs-of-others/model-huge-header' |
        start-from='images/fifo.npz' | class-names='a,b' | input-shape='8x8x1' | dataset='none' |
        selection='heldout' evaluate='local' | dataset='none' class-names='a' input-shape='8x8' |
        dataset='none' class-names='a,a' input-shape='8x8x1' |
        dataset='none' class-names=',,' input-shape='8x8x1' |
        dataset='none' class-names='a,b' input-shape='99999999x99999999x3' | client-data='nowhere' |
        client-data='a-file' | client-data='owners/clients-file' | client-data='owners' |
        client-data='owners/clients' | method-options='a=1' | max-update-norm=1e-300 |
        method='supervised' supervised.label-fraction=0 | method='xclp' labels.total=0 |
        method='xclp' labels.total=1000000000000000000 | method='xclp' labels.split='nowhere' |
        method='xclp' labels.split='a-file' | method='xclp' labels.split='data/good/train.npz' |
        method='xclp' labels.split='data/huge/train.npz' |
        method='xclp' labels.split='images/fifo.npz' | method='xclp' labels.split='data' |
        method='xclp' labels.classes-per-client=11 | method='xclp' xclp.k=0 |
        method='xclp' xclp.num-bits=1000000000000 |
        method='xclp' xclp.num-bits=7 | method='xclp' labels.without-client=99 |
        method='xclp' xclp.min-labeled-clients=99 semi.labels-only-rounds=0 | method='fedul-mix' |
        method='fedul-finetune' server.dataset='nowhere' |
        method='fedul-finetune' server.dataset='data/huge' |
        method='fedul-finetune' server.dataset='data/good' |
        method='fedul-finetune' server-fraction=0.1 server.points=1000000000000 |
        method='server-only' | dp.clipping='client' dp.norm=0 | dp.clipping='client' dp.delta=2.0 |
        dp.clipping='server' dp.noise-multiplier=-1 |
        learning-rate-schedule='plateau' validation-fraction=0.0 | measure-forgetting=true |
        dataset='wine' model='cnn-small' | dataset='wine' augment='flip' | augment='noise' |
        dataset='wine' image-size=8 | missing='mean' | standardize='owner' | noise=0.5 |
        dataset='wine' standardize='constants' | dataset='wine' noise=0.5 | columns='nowhere' |
        dataset='wine' standardize='none' columns='a-file' | dataset='wine' label-column=7 |
        dataset='wine' method='fixmatch' ssl.operations=2 | dataset='wine' model='resnet9' |
        dataset='wine' dp.clipping='server' | model='linear' model-width=7 | model-dropout=1.0 |
        dataset='tables/good-table' label-column='no' | dataset='tables/good-table' columns='data' |
        dataset='tables/good-table' columns='tables/columns-unknown-key.json' |
        dataset='tables/good-table' columns='tables/columns-no-list.json' |
        dataset='tables/good-table' columns='tables/columns-no-column.json' |
        dataset='tables/good-table' columns='tables/columns-no-category.json' |
        dataset='tables/good-table' columns='tables/columns-text-as-number.json' |
        dataset='tables/good-table' columns='tables/columns-bad-scale.json' |
        dataset='tables/good-table' columns='tables/columns-no-json.json' |
        dataset='tables/good-table' columns='tables/columns-list.json' |
        dataset='none' class-names='a,b' input-shape='30x1' |
        dataset='none' class-names='a,b' input-shape='0'
        """
    ):
        yield run(text)
    for file in texts(
        """
        nowhere.toml | folder.toml | fifo.toml | binary.toml | deep.toml | deep-table.toml |
        list.toml | latin.toml | long-number.toml | loop.toml | {LONG}.toml | a-file/x.toml |
        /dev/zero/x.toml | ~nobody/x.toml | {SURROGATE}.toml | {UNICODE}.toml
        """
    ):
        yield run(file)
    for output in texts(
        """
        a-file | a-file/x | /proc/x | /dev/null/x | /tmp/{LONG} | loop | loop/x | /sys/x
        """
    ):
        yield run(more=("--output", output))
    yield run(more=("--output", "runs-of-others/good"))
    for number in ("0", "-1", "many", "1.5", "1000000000000000000000", "100000000", "nan", ""):
        yield [
            "run",
            "--engine",
            "in-process",
            "-c",
            "model='mlp' num-rounds=1",
            "--num-supernodes",
            number,
        ]
    yield ["run", "--client-cpus", "0"]
    yield ["run", "--client-gpus", "-1"]
    yield ["run", "--no-such-option"]
    yield ["run", "argument"]
    yield ["no-such-command"]


def _before_start() -> Iterator[list[str]]:
    """Refused before Flower starts, which takes half a minute."""
    for text in texts(
        """
        model='lenett' | model='resnet 18' | model='' | model='torchvision:resnet1' | model='a:b' |
        model='own_raises:f' | model='own_builders:absent' | model='own_builders:number' |
        model='cnn-small+heads' | model='torchvision:' | model=':f' | model='own_builders:' |
        model='lenet' | method='fedull' | method='a:b' | method='own_exits:f' | method='json:loads'
        | dataset='digit' | dataset='nowhere/at/all' | dataset='/nowhere' | dataset='data/empty' |
        dataset='data/huge' | dataset='a-file' | dataset='data/two-channels' | dataset='Digits' |
        device='cude' | device='cuda' | base='fedavgg' | partition='iidd' | tracking='mlfloww' |
        start-from='nowhere' | client-data='nowhere' | test-prior='0.5,0.5' |
        method='xclp' labels.split='nowhere' | method='fedul-finetune' server.dataset='nowhere' |
        method='fedul-mix' | selection='validation' validation-fraction=0.0
        """
    ):
        yield ["run", "--num-supernodes", "2", "-c", "num-rounds=1", "-c", text]
    yield ["run", "--client-cpus", "100000"]
    yield ["run", "--output", "a-file"]
    yield ["run", "--output", "/proc/x"]
    yield ["run", "--resume", "runs-of-others/config-list"]
    yield ["run", "--resume", "runs-of-others/good", "--num-supernodes", "3"]
    yield ["label", "-c", "dataset='/nowhere'"]
    yield ["label", "-c", "dataset='digit'"]


def _data() -> Iterator[list[str]]:
    good = {"good", "pq-good", "loop-folder"}
    for name in texts(
        """
        huge | huge-labels | negative | objects | truncated | plain | empty-file | folders | fifos |
        no-labels | no-images | few-labels | text-labels | huge-label | negative-label | nan-labels
        | no-label-known | one-class | nan | range | flat | five | two-channels | no-pixels | none |
        one | int32 | complex | pq-columns | pq-null | pq-text | pq-not-images | pq-labels |
        pq-nested | pq-empty | pq-half | pq-junk | pq-middle | empty | only-train | both |
        fifo-image | loop-image | junk-image | empty-image | text-file | half-image | bomb | sizes |
        no-utf8 | socket-image
        """
    ):
        assert name not in good
        yield run(f"dataset='data/{name}'")
    for name in FORMS:
        yield run(f"dataset='{name}'")
    for name in texts(
        """
        nan | sum | negative | missing-set | twice | empty | header | ragged | huge-cell | latin |
        fifo
        """
    ):
        yield check(f"data='owners/priors-{name}'")
    for name in ("labels-class", "labels-name", "labels-nul"):
        yield check(f"data='owners/{name}'", "method='xclp'")


def _modules() -> Iterator[list[str]]:
    names = ("raises", "exits", "recurses", "syntax", "nul", "missing_import")
    builders = ("absent", "number", "raising", "exiting", "nothing", "one_argument")
    models = ("Raising", "Exiting", "Wide", "Flat", "Text", "NoWeights")
    for name in names:
        yield run(f"model='own_{name}:f'")
        yield run(f"method='own_{name}:f'")
    for name in (*builders, *models):
        yield run(f"model='own_builders:{name}'")
    for name in texts(
        """
        own_builders:number | json:loads | own_builders:absent | own_builders | ..:f | a b:c
        """
    ):
        yield run(f"method='{name}'")


def _resume() -> Iterator[list[str]]:
    for name in texts(
        """
        config-deep | config-list | config-half | config-nul | config-none | config-settings |
        config-empty | config-latin | config-type | config-method | config-model | config-model-list
        | last-none | last-empty | last-half | last-huge-header | last-junk | last-fifo |
        last-folder | last-nan | last-other | metrics-junk | metrics-nul | metrics-deep |
        metrics-round | metrics-huge | metrics-fifo | config-clients
        """
    ):
        yield [
            "run",
            "--engine",
            "in-process",
            "--resume",
            f"runs-of-others/{name}",
            "-c",
            "num-rounds=3",
        ]
    for place in ("data", "images/empty", "nowhere", "a-file", "loop", f"/{SURROGATE}", "/dev"):
        yield ["run", "--engine", "in-process", "--resume", place]
    for more in texts(
        """
        seed=1 | model='lenet' | method='fedpl' | output='x' | num-rounds='x' | num-rounds=0
        """
    ):
        yield ["run", "--engine", "in-process", "--resume", "runs-of-others/good", "-c", more]
    yield ["run", "--engine", "in-process", "--resume", "runs-of-others/good"]
    yield ["run", "--engine", "in-process", "--resume", "runs-of-others/good", "-c", "num-rounds=1"]
    yield [
        "run",
        "--engine",
        "in-process",
        "--resume",
        "runs-of-others/good",
        "--num-supernodes",
        "3",
    ]
