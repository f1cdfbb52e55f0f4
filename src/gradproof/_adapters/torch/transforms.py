"""What the graph of a call says: what it contains, whether a second derivative is silent.

To walk a graph by `next_functions` makes each node an object of Python, and such nodes release
their successors by recursion: 100,000 in a row end the process. So PyTorch's engine is asked.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import checkpoint

from gradproof._adapters.arrays import first_line
from gradproof._adapters.torch.forward import require_forward
from gradproof._adapters.torch.leaves import DenseLeaf, full, own
from gradproof._adapters.torch.operators import faults_of_operator, operator_name
from gradproof._adapters.torch.tree import floating_in
from gradproof._data.space import Array
from gradproof._maps.contract import Transform, Unsupported

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap

_WALKED = 1_000  # nodes of a graph that become objects of Python; far from what overflows a stack


class _PlannedError(Exception):
    """Ends a backward that is planned, before a node of the user's runs."""


class _Planned(torch.autograd.Function):
    """A number that depends on the outputs of a graph; its backward tells what would be run."""

    @staticmethod
    def forward(ctx: Any, tell: Callable[[], None], *outputs: torch.Tensor) -> torch.Tensor:  # noqa: ARG004  # the graph
        ctx.tell = tell
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> Any:
        ctx.tell()
        raise _PlannedError


def reached(outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> list[bool]:
    """Which of these leaf tensors, that require grad, the graph of the outputs contains."""
    after: Any = (
        torch._C._functions.UndefinedGrad()
    )  # takes every layout, and subclasses as tensors
    with torch.enable_grad():
        nodes = [after(leaf).grad_fn.next_functions[0][0] for leaf in leaves]
    return _planned(outputs, leaves, nodes)


def leading(outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> list[bool]:
    """Which of these outputs have one of the leaf tensors, that require grad, in their graph."""
    there = {id(leaf) for leaf in leaves}
    made = [output for output in outputs if output.grad_fn is not None]
    found = dict(
        zip(map(id, made), _planned(made, leaves, [one.grad_fn for one in made]), strict=True)
    )
    return [found.get(id(output), id(output) in there) for output in outputs]


def _planned(
    outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], nodes: Sequence[Any]
) -> list[bool]:
    """Which of these nodes a backward from the outputs to the leaves would run.

    It is begun, for which the engine finds what it has to run, and given up before any of that
    runs.
    """
    found = [False] * len(nodes)
    outputs = [output for output in outputs if output.requires_grad]
    if not leaves or not outputs:
        return found

    def tell() -> None:
        found[:] = map(torch._C._will_engine_execute_node, nodes)

    with torch.enable_grad():
        root = _Planned.apply(tell, *outputs)  # type: ignore[no-untyped-call]  # PyTorch's
        with contextlib.suppress(_PlannedError):
            torch.autograd.backward(root, retain_graph=True, inputs=list(leaves))
    return found


def silent_gradients(target: TorchMap, v: Array) -> list[str]:
    """One sentence for each gradient whose second derivative would be zero without a word.

    J^T v is linear in v. A gradient that is not zero and whose graph does not lead to v was
    computed outside of the graph: differentiated again, it counts as constant. once_differentiable
    makes that an error, which is honest.
    """
    leaves, cotangents = target.fresh(), [each.requires_grad_() for each in target.cotangents(v)]
    floating = floating_in(target.run(leaves))
    outputs = [floating[output.position] for output in target.attached]
    gradients = target.grad(outputs, leaves, cotangents, create_graph=True)
    found = []
    for leaf, gradient in zip(target.leaves, gradients, strict=True):
        if gradient is None or not bool(_values(gradient).any()):
            continue
        if not _leads_to(gradient, cotangents):
            found.append(
                f"the gradient of {leaf.slot.name} has no graph under create_graph=True: "
                "differentiated again it counts as constant, without an error; compute it with "
                "differentiable operations, or mark the backward as once_differentiable"
            )
    return found


def _values(gradient: torch.Tensor) -> torch.Tensor:
    gradient = gradient.detach()
    return gradient if gradient.layout is torch.strided else gradient.to_dense()


def _leads_to(gradient: torch.Tensor, wanted: Sequence[torch.Tensor]) -> bool:
    """Whether the graph of a gradient contains one of these leaves, or a node that raises."""
    if any(gradient is each for each in wanted) or any(reached([gradient], wanted)):
        return True
    return refuses(gradient)


def refuses(gradient: torch.Tensor) -> bool:
    """Whether a node in the graph of a gradient only raises: as once_differentiable marks it.

    Unsupported where the graph is too large to look for such a node.
    """
    stack: list[Any] = [gradient.grad_fn]
    seen: set[Any] = set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        if _raises(node):
            return True
        seen.add(node)
        if len(seen) > _WALKED:
            raise Unsupported(
                f"the graph of a gradient has more than {_WALKED:,} nodes, too many to look for "
                "one that raises"
            )
        stack.extend(following for following, _ in node.next_functions)
    return False


def _raises(node: Any) -> bool:
    return "Error" in node.name() or "NotImplemented" in node.name()


# AD transforms: what PyTorch's transforms make of a function's backward.
#
# Each computes J^T v, or J u, from a run of its own, on private leaves. That they agree with
# the backward that was checked is for the checks to say.


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


def available(target: TorchMap) -> tuple[Transform, ...]:
    """Every transform there is for this function."""
    found = [Transform(name, what) for name, what in _WHAT.items()]
    single = any(leaf.original.dtype is torch.float32 for leaf in target.leaves)
    found.append(Transform("autocast", "autocast to bfloat16", unit=_HALF if single else 0.0))
    found.append(Transform("functional_jvp", "torch.func.jvp", forward=True))
    if operator_name(target.fn):
        found.append(Transform("custom_operator", operator_name(target.fn), numbers=False))
    return tuple(found)


def vjp(target: TorchMap, v: Array, name: str) -> Array:
    """J^T v by the transform of that name. Unsupported where PyTorch has none for this function."""
    _require_plain(target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return target.collect(_TRANSFORMS[name](target, target.cotangents(v)))


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
    """The cotangents in the dtypes that the outputs have here."""
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
    def transform(target: TorchMap, cotangents: Sequence[torch.Tensor]) -> Any:
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

    return transform


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


_TRANSFORMS: Mapping[str, Callable[[TorchMap, Sequence[torch.Tensor]], Any]] = {
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
