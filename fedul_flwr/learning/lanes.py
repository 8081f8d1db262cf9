"""Clients of a round side by side on one GPU, with steps that are recorded once.

A *lane* is a model, an optimizer and what else a step reads or writes, used by one client after the
other. A small step spends most of its time on starting kernels. So a lane records the first one as
a CUDA graph; for every other batch, client and round it copies their values into the recorded
step's tensors, and starts all kernels at once. Lanes run on streams of their own, so the GPU works
for several clients at a time.

A recorded step repeats what it did with Python's values. It is used again only by a step whose
values are all equal, and which differs in tensors alone. What cannot be recorded runs as it is.

Each client has a thread. Only the one with the baton computes, until it waits for the GPU
(:func:`wait`): a client sees the same random numbers as without lanes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from queue import SimpleQueue
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fedul_flwr.config.base import AUTO
from fedul_flwr.data.seeds import draws_beside_torch, remember_draws
from fedul_flwr.learning.device import choose_device
from fedul_flwr.learning.task import Batch

T = TypeVar("T")
R = TypeVar("R")

Step = Callable[[Batch], Tensor | None]
"""One step: changes tensors that it refers to, and no other values. It may return a tensor; the
next recorded step writes into the same."""


class UnrecordableError(Exception):
    """A step cannot be recorded, with the reason."""


_baton = threading.Lock()
_here = threading.local()
_said: set[str] = set()
_MOST = 8
"""Most different steps that a lane records, and most forms of a batch of each."""


class Lane:
    """What one client at a time trains with.

    Parameters
    ----------
    device : its GPU, or the CPU.
    method : names its steps, in the line that says why one cannot be recorded.
    """

    def __init__(self, device: torch.device, method: str) -> None:
        self.method = method
        self._models: dict[Any, nn.Module] = {}
        self.recorded: dict[Any, Recorded] = {}
        self._stream: Any = None
        self.pool: Any = None
        if device.type == "cuda":
            torch.cuda.init()  # type: ignore[no-untyped-call]
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            # A graph reads seed and offset of the generator with which it was recorded: lanes
            # must not share them.
            self._draws = torch.cuda.default_generators[self._stream.device.index].clone_state()
            # Its graphs run one after the other, and leave nothing there that the next one needs.
            self.pool = torch.cuda.graph_pool_handle()

    def model(self, kind: Any, build: Callable[[], nn.Module]) -> nn.Module:
        """Its own model of a kind."""
        if kind not in self._models:
            self._models[kind] = build()
        return self._models[kind]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Context of a client that trains in this lane, in the current thread."""
        on_stream = nullcontext() if self._stream is None else torch.cuda.stream(self._stream)
        with on_stream:
            self._begin()
            _here.lane = self
            try:
                yield
            finally:
                _here.lane = None
                _baton.release()

    def wait(self) -> None:
        """Let others compute until the GPU has done all that this lane has ordered."""
        until_done, restore_draws = self._ordered(), remember_draws()
        _baton.release()
        try:
            until_done()
        finally:
            self._begin()
            restore_draws()  # others have seeded them

    def _ordered(self) -> Callable[[], object]:
        """A function that waits for the GPU."""
        if self._stream is None:
            return lambda: None
        done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        done.record(self._stream)
        wait: Callable[[], object] = done.synchronize
        return wait

    def _begin(self) -> None:
        _baton.acquire()
        if self._stream is not None:
            default = torch.cuda.default_generators[self._stream.device.index]
            default.graphsafe_set_state(self._draws)


class Lanes:
    """The lanes of a run, on all GPUs in turn.

    Parameters
    ----------
    number : of lanes; ``None`` for as many as there is memory for.
    device : the CPU, or a GPU for all.
    method : see :class:`Lane`.
    """

    def __init__(self, number: int | None, device: torch.device, method: str) -> None:
        self._number, self._method = number, method
        self._devices = [device]
        if device.type == "cuda":
            self._devices = [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
        self._free: SimpleQueue[Lane] = SimpleQueue()
        self._made = 0
        self._threads: ThreadPoolExecutor | None = None
        self._mine = threading.local()

    def map(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Results of ``work`` on each of ``tasks``, in their order."""
        rest = list(tasks)
        if self._threads is None:  # the first one shows how much memory a lane takes
            before = self._memory() if self._number is None else 0
            self._add(1)
            first = self._free.get()
            with first.at_work():
                result = work(rest.pop(0))
            self._free.put(first)
            yield result
            self._add(self._still(before) if self._number is None else self._number - 1)
            # Each keeps its lane: cuBLAS has memory for every thread that uses a stream.
            self._threads = ThreadPoolExecutor(self._made, initializer=self._take)
        yield from self._threads.map(partial(self._do, work), rest)

    def _take(self) -> None:
        self._mine.lane = self._free.get()

    def _do(self, work: Callable[[T], R], task: T) -> R:
        with self._mine.lane.at_work():
            return work(task)

    def _add(self, count: int) -> None:
        for _ in range(count):
            device = self._devices[self._made % len(self._devices)]
            self._free.put(Lane(device, self._method))
            self._made += 1

    def _memory(self) -> int:
        """Bytes that are free on the first GPU."""
        return torch.cuda.mem_get_info(self._devices[0])[0]

    def _still(self, before: int) -> int:
        """Further lanes for which there is memory: each takes what the first has taken."""
        free = self._memory()
        fitting = int(FILLED * free / max(before - free, 1))
        return (min(1 + fitting, MOST_LANES)) * len(self._devices) - 1


MOST_LANES = 16
"""Most lanes of a GPU that are made without being asked for."""
FILLED = 0.7
"""Share of the free memory that they may take."""


def lanes_of(number: int | str, device: str, method: str) -> Lanes | None:
    """The lanes of a run, by its settings; ``None`` if there are none."""
    chosen = choose_device(device)
    if number == 0 or (number == AUTO and chosen.type == "cpu"):
        return None
    return Lanes(None if number == AUTO else int(number), chosen, method)


def one_lane(number: int | str, device: str, method: str) -> Lane | None:
    """A lane of such a run, for who trains one model after the other; ``None`` without lanes."""
    has_lanes = lanes_of(number, device, method) is not None
    return Lane(choose_device(device), method) if has_lanes else None


def working_in(lane: Lane | None) -> AbstractContextManager[None]:
    """Context of work in a lane; without one it does nothing."""
    return nullcontext() if lane is None else lane.at_work()


def current() -> Lane | None:
    """The lane of the client that computes; ``None`` outside of lanes."""
    return getattr(_here, "lane", None)


def wait() -> None:
    """Wait for the GPU before its results are read; other lanes go on."""
    if (lane := current()) is not None:
        lane.wait()


@contextmanager
def recorded(step: Step, model: nn.Module) -> Iterator[Step]:
    """Context with ``step``, or in a lane with a recorded one that does the same.

    When it ends, the tensors of ``step`` have the values that its steps have given them.

    Parameters
    ----------
    model : what it trains, the lane's own.
    """
    lane = current()
    if lane is None:
        yield step
        return
    try:
        form = Form(step, model)
        form.move(next(model.parameters()).device)
        if form.key not in lane.recorded and len(lane.recorded) >= _MOST:
            raise UnrecordableError("values that are no tensors differ between clients or rounds")
    except UnrecordableError as reason:
        _say(lane.method, reason)
        yield step
        return
    program = lane.recorded.get(form.key)
    if program is None:
        program = lane.recorded[form.key] = Recorded(step, form, model, lane.method)
    if not program.is_recorded:
        yield step
        return
    program.read(form)
    yield program
    program.write(form)


def fixed_shapes(tensor: Tensor) -> bool:
    """Whether shapes must not depend on values: to read them, one waits for the GPU.

    Masks take the place of chosen points. A CPU computes less with these.
    """
    return tensor.is_cuda or current() is not None


def _say(method: str, reason: object) -> None:
    line = f"Steps of method {method!r} run one kernel at a time: {reason}."
    if line not in _said:
        _said.add(line)
        print(line, flush=True)


class Form:
    """The tensors that an object refers to, and all that it refers to beside them.

    Parameters
    ----------
    thing : any object of Python's own types, dataclasses, modules, functions and the like.
    model : stands for itself; its parts are not searched.

    Attributes
    ----------
    tensors : each once, in the order in which they were come upon.
    key : equal for objects that differ in the values of tensors alone.

    Raises
    ------
    UnrecordableError
        If it refers to something of another type.
    """

    def __init__(self, thing: object, model: nn.Module | None = None) -> None:
        self.tensors: list[Tensor] = []
        self._puts: list[list[Callable[[Tensor], None]]] = []
        self._key: list[Any] = []
        self._numbers: dict[int, int] = {id(model): 0}
        self._positions: dict[int, int] = {}  # of tensors
        self._alive: list[object] = [model]  # else ids could come again
        self._visit(thing, _refuse)
        self.key = tuple(self._key)

    def move(self, device: torch.device) -> None:
        """Put copies on ``device`` in place of tensors that are elsewhere."""
        for index, (tensor, puts) in enumerate(zip(self.tensors, self._puts, strict=True)):
            if tensor.device.type != device.type:
                moved = tensor.detach().to(device, non_blocking=True)
                moved.requires_grad_(tensor.requires_grad)
                if isinstance(tensor, nn.Parameter):
                    moved = nn.Parameter(moved, tensor.requires_grad)
                for put in puts:
                    put(moved)
                self.tensors[index] = moved

    def remember(self) -> Callable[[], None]:
        """A function that undoes changes of all that is no tensor."""
        things = [t for t in self._alive[1:] if not isinstance(t, Tensor)]
        before = [(thing, list(_parts(thing))) for thing in things]

        def undo() -> None:
            for thing, parts in before:
                if isinstance(thing, list):
                    thing[:] = [part for _, part, _ in parts]
                    continue
                if isinstance(thing, dict):
                    thing.clear()
                for _, part, put in parts:
                    if put is not _refuse:
                        put(part)

        return undo

    def _visit(self, thing: Any, put: Callable[[Any], None]) -> None:
        if isinstance(thing, _VALUES):
            self._key.append((type(thing), repr(thing)))
            return
        if id(thing) in self._numbers:
            self._key.append(self._numbers[id(thing)])
            if isinstance(thing, Tensor):
                self._puts[self._positions[id(thing)]].append(put)
            return
        self._numbers[id(thing)] = len(self._numbers)
        self._alive.append(thing)
        self._key.append(type(thing))
        if isinstance(thing, Tensor):
            self._positions[id(thing)] = len(self.tensors)
            self.tensors.append(thing)
            self._puts.append([put])
            self._key.append((tuple(thing.shape), thing.dtype, thing.requires_grad))
            return
        for name, part, put_part in _parts(thing):
            self._key.append(name)
            self._visit(part, put_part)


_VALUES = (
    *(type(None), bool, int, float, complex, str, bytes, np.generic, type),
    *(torch.dtype, torch.device, torch.Size, torch.memory_format, torch.layout),
)
_LARGE = 2**16
"""Most bytes of an array of NumPy that are compared."""
_Parts = Iterator[tuple[Any, Any, Callable[[Any], None]]]
"""Name and value of each part of an object, and a function that replaces it."""


def _refuse(_: object) -> None:
    raise UnrecordableError("a tensor that cannot be replaced is not on the device")


def _parts(thing: Any) -> _Parts:
    if isinstance(thing, dict):
        for name, value in thing.items():
            yield name, value, partial(thing.__setitem__, name)
    elif isinstance(thing, list):
        for index, value in enumerate(thing):
            yield index, value, partial(thing.__setitem__, index)
    elif isinstance(thing, tuple | frozenset | set):
        for index, value in enumerate(thing):
            yield index, value, _refuse
    elif isinstance(thing, np.ndarray):
        if thing.nbytes > _LARGE:
            raise UnrecordableError("it refers to a large array that is no tensor")
        yield (thing.shape, thing.dtype.str), thing.tobytes(), _refuse
    elif isinstance(thing, ModuleType | BuiltinFunctionType):
        yield thing.__name__, None, _refuse
    elif isinstance(thing, FunctionType):
        yield thing.__code__, thing.__defaults__, _refuse
        yield "named", thing.__kwdefaults__, _refuse
        for index, cell in enumerate(thing.__closure__ or ()):
            yield index, cell.cell_contents, partial(setattr, cell, "cell_contents")
    elif isinstance(thing, MethodType):
        yield "function", thing.__func__, _refuse
        yield "self", thing.__self__, _refuse
    elif isinstance(thing, partial):
        yield "function", thing.func, _refuse
        yield "arguments", thing.args, _refuse
        yield "named", thing.keywords, _refuse
    elif hasattr(thing, "__dict__") and not isinstance(thing, torch.Generator):
        for name, value in vars(thing).items():
            yield name, value, partial(object.__setattr__, thing, name)
    else:
        raise UnrecordableError(f"it refers to an object of type {type(thing).__name__}")


class Recorded:
    """A step over a lane's tensors: recorded, for each form of a batch, when it first runs.

    Parameters
    ----------
    step, form : the step of the first client, whose tensors are the lane's from now on.
    model : see :func:`recorded`.
    method : the lane's.
    """

    def __init__(self, step: Step, form: Form, model: nn.Module, method: str) -> None:
        self._step, self._form, self._model, self._method = step, form, model, method
        self._runs: dict[Any, tuple[Batch, Callable[[], None], list[Tensor | None]]] = {}
        self.is_recorded = True  # as far as one knows before its first batch

    @torch.no_grad()
    def read(self, form: Form) -> None:
        """Take the values of another step's tensors."""
        _copy(self._form.tensors, form.tensors)

    @torch.no_grad()
    def write(self, form: Form) -> None:
        """Give the values back to the other step's tensors."""
        _copy(form.tensors, self._form.tensors)

    def __call__(self, batch: Batch) -> Tensor | None:
        """One step on ``batch``."""
        inputs, targets = batch.inputs, batch.targets
        of_batch = inputs.shape, inputs.dtype, targets.shape, targets.dtype, batch.num_labeled
        if of_batch not in self._runs:
            if len(self._runs) >= _MOST:
                _say(self._method, "its batches have many sizes")
                return self._step(batch)
            self._runs[of_batch] = self._record(batch)
        static, run, results = self._runs[of_batch]
        static.inputs.copy_(inputs, non_blocking=True)
        static.targets.copy_(targets, non_blocking=True)
        run()
        return results[0]

    def _record(self, batch: Batch) -> tuple[Batch, Callable[[], None], list[Tensor | None]]:
        """The batch's tensors in the lane, what makes a step on them, and what that returned."""
        static = Batch(batch.inputs.clone(), batch.targets.clone(), batch.num_labeled)
        device, tensors = batch.inputs.device, self._form.tensors
        results: list[Tensor | None] = [None]

        def as_it_is() -> None:
            results[0] = self._step(static)

        record = RECORDERS.get(device.type)
        if record is None:
            return static, as_it_is, results
        state = [*tensors, *self._model.parameters(), *self._model.buffers()]
        before = [tensor.detach().clone() for tensor in state]
        restore_draws, drawn = _draws(device), draws_beside_torch()
        undo = self._form.remember()
        try:
            with _NoWaiting():  # type: ignore[no-untyped-call]
                for _ in range(2):  # libraries choose their kernels
                    as_it_is()
            after = Form(self._step, self._model)
            if after.key != self._form.key or list(map(id, after.tensors)) != list(
                map(id, tensors)
            ):
                raise UnrecordableError("it stores something new in place of what it refers to")
            if draws_beside_torch() != drawn:
                raise UnrecordableError("it draws from a generator of Python or NumPy")
            run = record(as_it_is)
        except (UnrecordableError, RuntimeError) as reason:
            _say(self._method, str(reason).strip().splitlines()[0].rstrip("."))
            undo()
            run, self.is_recorded = as_it_is, False
        with torch.no_grad():
            for tensor, value in zip(state, before, strict=True):
                tensor.copy_(value)
        restore_draws()
        return static, run, results


def _copy(into: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    pairs = [(a, b) for a, b in zip(into, values, strict=True) if a is not b]
    if pairs:
        torch._foreach_copy_([a.detach() for a, _ in pairs], [b.detach() for _, b in pairs])


def _draws(device: torch.device) -> Callable[[], None]:
    """A function that sets all generators to what they are now."""
    restore = remember_draws()
    of_gpu = torch.cuda.get_rng_state() if device.type == "cuda" else None

    def restore_all() -> None:
        restore()
        if of_gpu is not None:
            torch.cuda.set_rng_state(of_gpu)

    return restore_all


class _NoWaiting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context in which waiting for values is an error: nothing that does can be recorded.

    CUDA refuses it, too, but then a recording has begun; and torch's own check is for all threads.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        masked = name.lstrip("_").startswith("index") and any(
            isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)
            for index in (args[1] if isinstance(args[1], list | tuple) else ())
        )
        if masked or name.startswith(_WAITS):
            raise UnrecordableError(f"{func} waits for values")
        return func(*args, **(kwargs or {}))


_WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique", "equal")
"""Beginnings of names of operations that wait for the GPU; so does an index that is a mask."""


def _graph(run: Callable[[], None]) -> Callable[[], None]:
    """``run`` as a CUDA graph on the current stream; ``run`` refers to all that it reads."""
    graph = torch.cuda.CUDAGraph()
    lane = current()
    assert lane is not None
    # Other threads may evaluate or free memory meanwhile.
    with torch.cuda.graph(
        graph, lane.pool, torch.cuda.current_stream(), capture_error_mode="thread_local"
    ):
        run()

    return partial(_replay, graph, run)


def _replay(graph: torch.cuda.CUDAGraph, run: Callable[[], None]) -> None:
    """Start the graph's kernels; its tensors, to which ``run`` refers, must outlive it."""
    del run
    graph.replay()


RECORDERS: Mapping[str, Callable[[Callable[[], None]], Callable[[], None]]] = {"cuda": _graph}
"""How a step is recorded, by type of device."""
