"""AD transforms: what PyTorch's transforms make of a function's backward.

Each computes J^T v, or J u, from a run of its own, on private leaves. That they agree with the
backward that was checked is for the checks to say.
"""

from __future__ import annotations

import shutil
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from gradproof._adapters.raised import unsupported
from gradproof._adapters.torch.call import Call, is_custom, operator_name
from gradproof._adapters.torch.forward import Forward, functional
from gradproof._adapters.torch.graph import Graph, reached, refuses
from gradproof._adapters.torch.leaves import DenseLeaf, Leaf, own, spot
from gradproof._data.frames import first_line
from gradproof._data.space import Array
from gradproof._maps.contract import Transform, Unsupported

_HALF = 2.0**-8  # unit round-off of bfloat16, in which autocast computes what is float32
_THREADS = 4

Tensors = Sequence[torch.Tensor]


def available(call: Call) -> tuple[Transform, ...]:
    """Every transform there is for this function."""
    leaves = call.inputs.leaves
    single = any(leaf.original.dtype is torch.float32 for leaf in leaves)
    found = [*_OF_ANY, _IN_HALF if single else _AUTOCAST]
    if len(_firsts(leaves)) < len(leaves):
        found.append(_AS_GIVEN)
    if operator := operator_name(call.fn):
        found.append(Transform("custom_operator", operator, numbers=False))
    return tuple(found)


def vjp(graph: Graph, v: Array, name: str) -> Array:
    """J^T v by the transform of that name. Unsupported where PyTorch has none for this function."""
    _require_plain(graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return graph.inputs.vector(_TRANSFORMS[name][1](graph, graph.outputs.cotangents(v)))


def jvp(graph: Graph, forward: Forward, u: Array) -> Array:
    """J u by torch.func.jvp."""
    _require_plain(graph)
    forward.require()
    primals = tuple(graph.inputs.at(own(graph.inputs.point)))
    tangents = tuple(graph.inputs.directions(own(u)))
    found = functional(lambda: torch.func.jvp(_run(graph), primals, tangents)[1])
    return graph.outputs.vector(zip(graph.outputs.attached, found, strict=True))


def faults(graph: Graph, v: Array, name: str) -> Sequence[str]:
    """What is wrong beside the numbers, one sentence each."""
    if name == "once_differentiable":
        _require_plain(graph)
        return _silent_gradients(graph, v)
    if name == "custom_operator":
        return _faults_of_operator(graph.call)
    return ()


def _require_plain(graph: Graph) -> None:
    graph.call.require_arguments()
    if not graph.roots:
        raise Unsupported("no output has a derivative")


def _run(graph: Graph, fn: Callable[..., Any] | None = None) -> Callable[..., Tensors]:
    """The function of its inputs: a tuple of the outputs that have a derivative."""
    return lambda *tensors: tuple(graph.outputs.roots(graph.call.run(tensors, fn)))


def _again(graph: Graph) -> Graph:
    return graph.again(graph.call.fresh())


def _pull(graph: Graph, run: Callable[..., Tensors], cotangents: Tensors) -> Any:
    """Gradients of fresh leaves by one run and one backward, in the dtypes of its outputs."""
    leaves = graph.call.fresh()
    outputs = run(*leaves)
    fitting = [v.to(output.dtype) for output, v in zip(outputs, cotangents, strict=True)]
    return graph.call.grad(outputs, leaves, fitting)


def _by_grad(graph: Graph, cotangents: Tensors) -> Any:
    run, places = _run(graph), tuple(range(len(graph.tensors)))

    def paired(*tensors: torch.Tensor) -> torch.Tensor:
        pairs = zip(run(*tensors), cotangents, strict=True)
        terms = [(v.conj() * y).real if y.is_complex() else v * y for y, v in pairs]
        return torch.stack([term.sum().double() for term in terms]).sum()

    return functional(lambda: torch.func.grad(paired, argnums=places)(*_plain(graph)))


def _by_vjp(graph: Graph, cotangents: Tensors) -> Any:
    return functional(lambda: torch.func.vjp(_run(graph), *_plain(graph))[1](tuple(cotangents)))


def _plain(graph: Graph) -> list[torch.Tensor]:
    return [leaf.detach() for leaf in graph.call.fresh()]


def _compiled(backend: str, graph: Graph, cotangents: Tensors) -> Any:
    if backend == "inductor" and not (shutil.which("c++") or shutil.which("g++")):
        raise Unsupported("inductor needs a C++ compiler, and none is installed")
    if not all(isinstance(leaf, DenseLeaf) for leaf in graph.inputs.leaves):
        raise Unsupported("torch.compile takes dense inputs only")
    compiled = torch.compile(graph.call.fn, backend=backend, dynamic=False)
    from torch._dynamo.exc import TorchDynamoException

    with unsupported(TorchDynamoException):
        return _pull(graph, _run(graph, compiled), cotangents)


def _checkpointed(graph: Graph, cotangents: Tensors) -> Any:
    run = _run(graph)
    return _pull(graph, lambda *x: checkpoint(run, *x, use_reentrant=False), cotangents)


def _hooked(graph: Graph, cotangents: Tensors) -> Any:
    def copied(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone()

    with torch.autograd.graph.saved_tensors_hooks(copied, copied):
        return _pull(graph, _run(graph), cotangents)


def _twice(graph: Graph, cotangents: Tensors) -> Any:
    other, pull = _again(graph), graph.call.grad
    pull(other.roots, other.tensors, [0.5 * v - 1 for v in cotangents])
    return pull(other.roots, other.tensors, cotangents)


def _accumulated(graph: Graph, cotangents: Tensors) -> Any:
    """What two calls of `backward()`, whose cotangents add up to v, leave in `.grad`."""
    other = _again(graph)
    parts = [0.5 * v - 1 for v in cotangents]
    for each in (parts, [v - part for v, part in zip(cotangents, parts, strict=True)]):
        torch.autograd.backward(other.roots, each, retain_graph=True, inputs=list(other.tensors))
    return [leaf.grad for leaf in other.tensors]


def _with_graph(graph: Graph, cotangents: Tensors) -> Any:
    found = _again(graph).grad([v.requires_grad_() for v in cotangents], create_graph=True)
    return [None if gradient is None else gradient.detach() for gradient in found]


def _non_leaf(graph: Graph, cotangents: Tensors) -> Any:
    run = _run(graph)
    return _pull(graph, lambda *x: run(*(tensor.clone() for tensor in x)), cotangents)


def _in_place_view(graph: Graph, cotangents: Tensors) -> Any:
    if not all(isinstance(leaf, DenseLeaf) for leaf in graph.inputs.leaves):
        raise Unsupported("only dense inputs can be views of a larger array")

    def written(tensor: torch.Tensor) -> torch.Tensor:
        view = tensor.new_zeros((3, *tensor.shape))[1]
        view.copy_(tensor)
        return view

    run = _run(graph)
    return _pull(graph, lambda *x: run(*map(written, x)), cotangents)


def _mapped(graph: Graph, cotangents: Tensors) -> Any:
    """The second of two points that one vmap takes together, in the last dimension."""
    points = [torch.stack([0.75 * x, x], -1) for x in _plain(graph)]
    seeds = tuple(torch.stack([-v, v]) for v in cotangents)
    both = torch.func.vmap(_run(graph), in_dims=-1, randomness="same")
    found = functional(lambda: torch.func.vjp(both, *points)[1](seeds))
    return [gradient[..., 1] for gradient in found]


def _firsts(leaves: Sequence[Leaf]) -> dict[Any, int]:
    """Where each of the user's tensors stands first among the inputs."""
    firsts: dict[Any, int] = {}
    for place, leaf in enumerate(leaves):
        firsts.setdefault(spot(leaf.original), place)
    return firsts


def _shared(graph: Graph, cotangents: Tensors) -> Any:
    """Inputs that were given as one tensor are one; the first has what the others leave."""
    leaves, tensors = graph.inputs.leaves, graph.call.fresh()
    firsts = _firsts(leaves)
    places = [firsts[spot(leaf.original)] for leaf in leaves]
    outputs = _run(graph)(*(tensors[first] for first in places))
    apart = graph.grad(cotangents)
    found = [
        torch.zeros_like(tensor) if gradient is None else gradient
        for tensor, gradient in zip(
            tensors, graph.call.grad(outputs, tensors, cotangents), strict=True
        )
    ]
    for place, first in enumerate(places):
        alone = apart[place]
        if place != first and alone is not None:
            found[first], found[place] = found[first] - alone, alone
    return found


def _threaded(graph: Graph, cotangents: Tensors) -> Any:
    """Of backwards at once, each of a graph of its own, the one furthest from a lonely one."""
    if graph.call.fixed_random:
        raise Unsupported("the function draws random numbers, from one generator for all threads")
    graphs = [_again(graph) for _ in range(_THREADS)]
    alone = graph.inputs.vector(_pull(graph, _run(graph), cotangents))
    barrier = threading.Barrier(_THREADS)
    found: dict[int, Any] = {}

    def backward(number: int) -> None:
        barrier.wait()
        try:
            found[number] = graphs[number].grad([v.clone() for v in cotangents])
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=backward, args=(k,)) for k in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in found.values():
        if isinstance(one, Exception):
            raise one
    return max(found.values(), key=lambda one: float(abs(graph.inputs.vector(one) - alone).sum()))


def _autocast(graph: Graph, cotangents: Tensors) -> Any:
    run, kind = _run(graph), graph.inputs.leaves[0].original.device.type
    if not torch.amp.is_autocast_available(kind):
        raise Unsupported(f"no autocast on {kind}")

    def cast(*tensors: torch.Tensor) -> Tensors:
        with torch.autocast(kind, dtype=torch.bfloat16):
            return run(*tensors)

    return _pull(graph, cast, cotangents)


_TRANSFORMS: dict[str, tuple[str, Callable[[Graph, Tensors], Any]]] = {
    "functional_grad": ("torch.func.grad", _by_grad),
    "functional_vjp": ("torch.func.vjp", _by_vjp),
    "compiled": ("torch.compile with aot_eager", partial(_compiled, "aot_eager")),
    "compiled_native": ("torch.compile with inductor", partial(_compiled, "inductor")),
    "checkpointed": ("activation checkpointing", _checkpointed),
    "hooks": ("saved-tensor hooks that hand back copies", _hooked),
    "twice": ("a second backward through one graph", _twice),
    "accumulated": ("two backwards into .grad", _accumulated),
    "once_differentiable": ("create_graph=True", _with_graph),
    "non_leaf": ("inputs that are no leaves", _non_leaf),
    "in_place_view": ("inputs that are views written in place", _in_place_view),
    "mapped": ("torch.func.vmap over two points", _mapped),
    "shared": ("inputs that are one tensor, as they were given", _shared),
    "threads": (f"backwards in {_THREADS} threads at once", _threaded),
    "autocast": ("autocast to bfloat16", _autocast),
}
_EVERY = {name: Transform(name, what) for name, (what, _) in _TRANSFORMS.items()}
_AS_GIVEN, _AUTOCAST = replace(_EVERY.pop("shared"), given=True), _EVERY.pop("autocast")
_IN_HALF = replace(_AUTOCAST, unit=_HALF)
_OF_ANY = (*_EVERY.values(), Transform("functional_jvp", "torch.func.jvp", forward=True))


def _silent_gradients(graph: Graph, v: Array) -> list[str]:
    """One sentence for each gradient whose second derivative would be zero without a word.

    J^T v is linear in v. A gradient that is not zero and whose graph does not lead to v was
    computed outside of the graph: differentiated again, it counts as constant. once_differentiable
    makes that an error, which is honest.
    """
    cotangents = [each.requires_grad_() for each in graph.outputs.cotangents(v)]
    gradients = _again(graph).grad(cotangents, create_graph=True)
    return [
        f"the gradient of {leaf.slot.name} has no graph under create_graph=True: "
        "differentiated again it counts as constant, without an error; compute it with "
        "differentiable operations, or mark the backward as once_differentiable"
        for leaf, gradient in zip(graph.inputs.leaves, gradients, strict=True)
        if gradient is not None
        and bool(gradient.detach().to_dense().any())
        # Neither is it a cotangent, nor does its graph hold one, or a node that raises.
        and not any(gradient is each for each in cotangents)
        and not any(reached([gradient], cotangents))
        and not refuses(gradient)
    ]


def _faults_of_operator(call: Call) -> list[str]:
    """What torch.library.opcheck finds: schema, registration, fake tensors, AOT dispatch.

    It compares no gradient with anything; the other checks do.
    """
    name, operator = operator_name(call.fn), call.fn
    if not is_custom(name):
        raise Unsupported(f"{name} is PyTorch's own; opcheck is for custom operators")
    args, kwargs = call.arguments.call(lambda *args, **kwargs: (args, kwargs), call.fresh())
    told: Any = torch.library.opcheck(operator, args, kwargs, raise_exception=False)  # type: ignore[arg-type]  # it is one
    return [
        f"{name}: torch.library.opcheck, {test}: {first_line(said)}"
        for test, said in told.items()
        if isinstance(said, BaseException)
    ]
