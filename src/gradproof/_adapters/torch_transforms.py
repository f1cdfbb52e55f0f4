"""One derivative by many roads: what PyTorch's transforms make of a function's backward.

Each road computes J^T v, or J u, from a run of its own, on private leaves. That they agree with
the backward that was checked is for the checks to say.
"""

from __future__ import annotations

import shutil
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import checkpoint

from gradproof._adapters._arrays import first_line
from gradproof._adapters.torch_forward import require_forward
from gradproof._adapters.torch_graph import silent_gradients
from gradproof._adapters.torch_leaves import DenseLeaf
from gradproof._adapters.torch_operators import faults_of_operator, operator_name
from gradproof._adapters.torch_tree import floating_in
from gradproof._adapters.torch_vectors import full, own
from gradproof._map import Unsupported, Variant
from gradproof._space import Array

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap

_HALF = 2.0**-8  # unit round-off of bfloat16, in which autocast computes what is float32
_THREADS = 4

_WHAT = {
    "functional_grad": "torch.func.grad",
    "functional_vjp": "torch.func.vjp",
    "compiled": "torch.compile with aot_eager",
    "compiled_native": "torch.compile with inductor",
    "checkpointed": "activation checkpointing",
    "hooks": "saved-tensor hooks that hand back copies",
    "twice": "a second backward through one graph",
    "accumulated": "two backwards into .grad",
    "once_differentiable": "create_graph=True",
    "non_leaf": "inputs that are no leaves",
    "in_place_view": "inputs that are views written in place",
    "threads": f"backwards in {_THREADS} threads at once",
}


def variants(target: TorchMap) -> tuple[Variant, ...]:
    """Every road there is for this function."""
    found = [Variant(name, what) for name, what in _WHAT.items()]
    single = any(leaf.original.dtype is torch.float32 for leaf in target.leaves)
    found.append(Variant("autocast", "autocast to bfloat16", unit=_HALF if single else 0.0))
    found.append(Variant("functional_jvp", "torch.func.jvp", forward=True))
    if operator_name(target.fn):
        found.append(Variant("custom_operator", operator_name(target.fn), numbers=False))
    return tuple(found)


def vjp(target: TorchMap, v: Array, name: str) -> Array:
    """J^T v by the road of that name. Unsupported where PyTorch has none for this function."""
    _require_plain(target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return target.collect(_ROADS[name](target, target.cotangents(v)))


def jvp(target: TorchMap, u: Array) -> Array:
    """J u by torch.func.jvp."""
    _require_plain(target)
    require_forward(target)
    primals = tuple(target.tensors_at(own(target.point)))
    tangents = tuple(target.directions(own(u)))
    found = _functional(lambda: torch.func.jvp(_outputs(target), primals, tangents)[1])
    vector = full(target.codomain.size, 0.0, target.home)
    for output, tangent in zip(target.attached, found, strict=True):
        vector[output.part] = output.vector(tangent)
    return vector


def faults(target: TorchMap, v: Array, name: str) -> Sequence[str]:
    """What is wrong beside the numbers, one sentence each."""
    if name == "once_differentiable":
        _require_plain(target)
        return silent_gradients(target, v)
    if name == "custom_operator":
        return faults_of_operator(target)
    return ()


def _require_plain(target: TorchMap) -> None:
    if target.in_place:
        raise Unsupported("the function reads its inputs from outside its arguments")
    if not target.attached:
        raise Unsupported("no output has a derivative")


def _outputs(target: TorchMap) -> Callable[..., tuple[torch.Tensor, ...]]:
    places = [output.position for output in target.attached]

    def outputs(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        floating = floating_in(target.run(tensors))
        return tuple(floating[place] for place in places)

    return outputs


def _functional(run: Callable[[], Any]) -> Any:
    """What torch.func returns, or Unsupported where it refuses the function."""
    try:
        return run()
    except (RuntimeError, TypeError, AttributeError, NotImplementedError) as error:
        raise Unsupported(first_line(error)) from error


def _pull(
    target: TorchMap,
    run: Callable[..., Sequence[torch.Tensor]],
    cotangents: Sequence[torch.Tensor],
) -> Sequence[torch.Tensor | None]:
    """Gradients of fresh leaves by one run and one backward."""
    leaves = target.fresh()
    outputs = run(*leaves)
    return target.grad(outputs, leaves, _fitting(outputs, cotangents))


def _fitting(
    outputs: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The cotangents in the dtypes that the outputs have on this road."""
    return [v.to(output.dtype) for output, v in zip(outputs, cotangents, strict=True)]


def _by_grad(target: TorchMap, cotangents: Sequence[torch.Tensor]) -> Any:
    outputs, places = _outputs(target), tuple(range(len(target.leaves)))

    def paired(*tensors: torch.Tensor) -> torch.Tensor:
        pairs = zip(outputs(*tensors), cotangents, strict=True)
        terms = [(v.conj() * y).real if y.is_complex() else v * y for y, v in pairs]
        return torch.stack([term.sum().double() for term in terms]).sum()

    return _functional(lambda: torch.func.grad(paired, argnums=places)(*_plain(target)))


def _by_vjp(target: TorchMap, cotangents: Sequence[torch.Tensor]) -> Any:
    return _functional(
        lambda: torch.func.vjp(_outputs(target), *_plain(target))[1](tuple(cotangents))
    )


def _plain(target: TorchMap) -> list[torch.Tensor]:
    return [leaf.detach() for leaf in target.fresh()]


def _compiled(backend: str) -> Callable[[TorchMap, Sequence[torch.Tensor]], Any]:
    def road(target: TorchMap, cotangents: Sequence[torch.Tensor]) -> Any:
        if backend == "inductor" and not (shutil.which("c++") or shutil.which("g++")):
            raise Unsupported("inductor needs a C++ compiler, and none is installed")
        if not all(isinstance(leaf, DenseLeaf) for leaf in target.leaves):
            raise Unsupported("torch.compile takes dense inputs only")
        compiled = torch.compile(target.fn, backend=backend, dynamic=False)
        places = [output.position for output in target.attached]

        def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
            floating = floating_in(target.run_as(compiled, tensors))
            return [floating[place] for place in places]

        from torch._dynamo.exc import TorchDynamoException

        try:
            return _pull(target, run, cotangents)
        except TorchDynamoException as error:
            raise Unsupported(first_line(error)) from error

    return road


def _checkpointed(target: TorchMap, cotangents: Sequence[torch.Tensor]) -> Any:
    outputs = _outputs(target)
    return _pull(target, lambda *x: checkpoint(outputs, *x, use_reentrant=False), cotangents)


def _hooked(target: TorchMap, cotangents: Sequence[torch.Tensor]) -> Any:
    def copied(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone()

    with torch.autograd.graph.saved_tensors_hooks(copied, copied):
        return _pull(target, _outputs(target), cotangents)


def _twice(target: TorchMap, cotangents: Sequence[torch.Tensor]) -> Any:
    leaves = target.fresh()
    outputs = _outputs(target)(*leaves)
    target.grad(outputs, leaves, [0.5 * v - 1 for v in cotangents])
    return target.grad(outputs, leaves, list(cotangents))


def _accumulated(target: TorchMap, cotangents: Sequence[torch.Tensor]) -> Any:
    """What two calls of `backward()`, whose cotangents add up to v, leave in `.grad`."""
    leaves = target.fresh()
    outputs = _outputs(target)(*leaves)
    parts = [0.5 * v - 1 for v in cotangents]
    for each in (parts, [v - part for v, part in zip(cotangents, parts, strict=True)]):
        torch.autograd.backward(outputs, each, retain_graph=True, inputs=leaves)
    return [leaf.grad for leaf in leaves]


def _with_graph(target: TorchMap, cotangents: Sequence[torch.Tensor]) -> Any:
    leaves = target.fresh()
    asking = [v.requires_grad_() for v in cotangents]
    found = target.grad(_outputs(target)(*leaves), leaves, asking, create_graph=True)
    return [None if gradient is None else gradient.detach() for gradient in found]


def _non_leaf(target: TorchMap, cotangents: Sequence[torch.Tensor]) -> Any:
    outputs = _outputs(target)
    return _pull(target, lambda *x: outputs(*(tensor.clone() for tensor in x)), cotangents)


def _in_place_view(target: TorchMap, cotangents: Sequence[torch.Tensor]) -> Any:
    if not all(isinstance(leaf, DenseLeaf) for leaf in target.leaves):
        raise Unsupported("only dense inputs can be views of a larger array")
    outputs = _outputs(target)

    def views(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        written = []
        for tensor in tensors:
            base = tensor.new_zeros((3, *tensor.shape))
            view = base[1]
            view.copy_(tensor)
            written.append(view)
        return outputs(*written)

    return _pull(target, views, cotangents)


def _threaded(target: TorchMap, cotangents: Sequence[torch.Tensor]) -> Any:
    """Of backwards at once, each of a graph of its own, the one furthest from a lonely one."""
    if target.fixed_random:
        raise Unsupported("the function draws random numbers, from one generator for all threads")
    outputs = _outputs(target)
    graphs = [(outputs(*leaves), leaves) for leaves in (target.fresh() for _ in range(_THREADS))]
    alone = target.collect(_pull(target, outputs, cotangents))
    barrier = threading.Barrier(_THREADS)
    found: dict[int, Any] = {}

    def backward(number: int) -> None:
        barrier.wait()
        try:
            found[number] = target.grad(*graphs[number], [v.clone() for v in cotangents])
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
    return max(found.values(), key=lambda one: float(abs(target.collect(one) - alone).sum()))


def _autocast(target: TorchMap, cotangents: Sequence[torch.Tensor]) -> Any:
    outputs, kind = _outputs(target), target.leaves[0].original.device.type
    if not torch.amp.is_autocast_available(kind):
        raise Unsupported(f"no autocast on {kind}")

    def run(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.autocast(kind, dtype=torch.bfloat16):
            return outputs(*tensors)

    return _pull(target, run, cotangents)


_ROADS: Mapping[str, Callable[[TorchMap, Sequence[torch.Tensor]], Any]] = {
    "functional_grad": _by_grad,
    "functional_vjp": _by_vjp,
    "compiled": _compiled("aot_eager"),
    "compiled_native": _compiled("inductor"),
    "checkpointed": _checkpointed,
    "hooks": _hooked,
    "twice": _twice,
    "accumulated": _accumulated,
    "once_differentiable": _with_graph,
    "non_leaf": _non_leaf,
    "in_place_view": _in_place_view,
    "threads": _threaded,
    "autocast": _autocast,
}
