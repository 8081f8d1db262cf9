"""Faults of the programs of a run on Ray, and of a consortium: see :mod:`process_faults`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import psutil

from fedul_flwr.config.run_config import resolve
from robustness.process_faults import (
    CLIENTS,
    METHODS,
    PATIENCE,
    SIGNALS,
    Fault,
    Report,
    command,
    fail_here,
    go_on,
    marked,
    read_results,
    same_bits,
    start_arguments,
    table,
    undisturbed,
    wait,
    wait_until_nothing_is_left,
    workplace,
)
from tests.support.deployment import Deployment, consortium
from tests.support.learnable_owners import NO_DATA, write_sets
from tests.support.patience import quiet_seconds, wait_until
from tests.support.runs import own_data_app, train

ON_RAY = {
    "command line": "",
    "server app": "ray_program",
    "Ray actor": "ray::",
}
"""Programs of a run on Ray, with a part of their command lines."""
DEPLOYED = ("SuperLink", "SuperNode", "server app")
OWNERS_SETTINGS = {
    **{**NO_DATA, "method": "fedul", "model": "mlp", "local-epochs": 1},
    **{"selection": "last", "num-rounds": 3},
}


def fail_on_ray(
    tries: int,
    chance: random.Random,
    place: Path,
    report: Report,
    programs: Sequence[str] = tuple(ON_RAY),
) -> None:
    """Hit one of ``programs`` of a run on Ray after the other, once it is there."""
    wanted = {name: undisturbed(name, place)[0] for name in METHODS}
    for number in range(tries):
        method = list(METHODS)[number % 2]
        program, hit = programs[number % len(programs)], SIGNALS[number // len(programs) % 3]
        output, log = place / f"ray-{number}", place / f"ray-{number}.log"
        while True:  # until it was hit before its end
            shutil.rmtree(output, ignore_errors=True)
            began = time.monotonic()
            child = command(start_arguments(method, output, "ray"), log)
            victim = _find(child, ON_RAY[program])
            # A round takes a second; what comes before takes as long as the program takes to start.
            time.sleep(chance.uniform(0, 6))
            with contextlib.suppress(psutil.NoSuchProcess):
                if victim is not None and os.waitpid(child, os.WNOHANG)[0] == 0:
                    victim.send_signal(hit)
                    break
        after = time.monotonic() - began
        codes = [wait(child)]
        if codes[0] != 0:  # Flower may carry out an actor's messages elsewhere
            codes.append(go_on(method, output, log))
        same = codes[-1] == 0 and same_bits(output, wanted[method])
        left = wait_until_nothing_is_left(output)
        said = "" if same and not left else f"{codes}\n{log.read_text()}"
        report(Fault("Ray", program, hit.name, after, same, left, said))
        shutil.rmtree(output)


def _find(child: int, part: str) -> psutil.Process | None:
    """The program of the run that fork ``child`` starts; ``None`` if the run ended first."""
    if not part:
        return psutil.Process(child)
    for _ in quiet_seconds(PATIENCE):
        for process in marked():
            with contextlib.suppress(psutil.Error):
                if part in " ".join([process.name(), *process.cmdline()]):
                    return process
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return None
    return None


def fail_deployed(tries: int, chance: random.Random, place: Path, report: Report) -> None:
    """Hit programs of a consortium whose SuperNodes have keys and whose SuperLink has TLS."""
    folders = [place / f"ward-{client}" for client in range(CLIENTS)]
    for client, folder in enumerate(folders):
        write_sets(folder, seed=client)
    here = resolve({**OWNERS_SETTINGS, "output": str(place / "here")}, place)
    whole = train(here, CLIENTS, client_app=own_data_app(folders))
    with consortium(place, CLIENTS) as deployment:
        for client, folder in enumerate(folders):
            deployment.start_node(client, folder)
        for client in range(CLIENTS):
            deployment.node_id(client)
        for number in range(tries):
            program = DEPLOYED[number % len(DEPLOYED)]
            hit = SIGNALS[number // len(DEPLOYED) % 3]
            output = place / f"there-{number}"
            report(_deployed_fault(deployment, program, hit, chance, output, whole, folders))
            shutil.rmtree(output)
        deployment.stop_nodes()


def _deployed_fault(
    deployment: Deployment,
    program: str,
    hit: signal.Signals,
    chance: random.Random,
    output: Path,
    whole: Path,
    folders: list[Path],
) -> Fault:
    began = time.monotonic()
    run = deployment.submit(_text({**OWNERS_SETTINGS, "output": str(output)}))
    deployment.wait_for("run", rf"\[ROUND {chance.randint(1, 3)}/3\]", PATIENCE)
    time.sleep(chance.uniform(0, 5))
    after = time.monotonic() - began
    client = chance.randrange(CLIENTS)
    name = {"SuperLink": "superlink", "SuperNode": f"node-{client}"}.get(program, "")
    if name:
        deployment.processes[name].send_signal(hit)
    else:
        _server_app(deployment).send_signal(hit)
    said = deployment.wait(run)
    if name:
        process = deployment.processes[name]
        wait_until(lambda: process.poll() is not None, PATIENCE, f"the end of {name}")
    if program == "SuperLink":
        deployment.start_superlink()
    elif program == "SuperNode":
        deployment.start_node(client, folders[client])
        deployment.node_id(client)
    again = (
        {"resume": str(output)}
        if (output / "config.json").exists()
        else {**OWNERS_SETTINGS, "output": str(output)}
    )
    said += deployment.wait(deployment.submit(_text(again)))
    same = same_bits(output, whole)
    # The consortium's programs go on.
    left = [str(path.relative_to(output)) for path in output.rglob("*.part")]
    return Fault(
        "deployed", program, hit.name, after, same, left, "" if same and not left else said
    )


def _server_app(deployment: Deployment) -> psutil.Process:
    superlink = psutil.Process(deployment.processes["superlink"].pid)
    [found] = [
        process
        for process in superlink.children(recursive=True)
        if "flwr-serverapp" in " ".join(process.cmdline())
    ]
    return found


def _text(settings: dict[str, object]) -> str:
    return " ".join(
        f"{key}={repr(value) if isinstance(value, str) else str(value).lower()}"
        for key, value in settings.items()
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--in-process", type=int, default=42, metavar="TRIES")
    parser.add_argument("--pool", type=int, default=24, metavar="TRIES")
    parser.add_argument("--ray", type=int, default=12, metavar="TRIES")
    parser.add_argument("--deployed", type=int, default=6, metavar="TRIES")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--results", type=Path, metavar="FILE", help="JSON file to add to")


def run_process_faults(arguments: argparse.Namespace) -> int:
    """Carry out all faults and print the table; returns how many went wrong."""
    from robustness.bad_files import warm_up

    warm_up()
    found = read_results(arguments.results)

    def report(fault: Fault) -> None:
        found.append(fault)
        verdict = "same bits" if fault.same else "NOT THE SAME"
        hit = f"{fault.kind}, {fault.program}, {fault.signal} after {fault.after:.1f} s"
        print(f"{hit}: {verdict}, left behind: {', '.join(fault.left) or 'nothing'}", flush=True)
        if fault.said:
            print("    " + "\n    ".join(fault.said.splitlines()[-15:]), flush=True)
        if arguments.results is not None:
            arguments.results.write_text(json.dumps([asdict(one) for one in found], indent=1))

    with workplace() as place:
        chance = random.Random(f"{arguments.seed}, {len(found)}")
        if arguments.in_process:
            fail_here("in-process", arguments.in_process, chance, place, report)
        if arguments.pool:
            fail_here("processes", arguments.pool, chance, place, report)
        if arguments.ray:
            fail_on_ray(arguments.ray, chance, place, report)
        if arguments.deployed:
            fail_deployed(arguments.deployed, chance, place, report)
    print(table(found))
    return sum(not fault.same or bool(fault.left) for fault in found)
