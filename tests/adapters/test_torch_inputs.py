"""Programs as people have them: layers, closures, containers, and which inputs are checked."""

from __future__ import annotations

import functools
from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass, field

import pytest
import torch

import gradproof
from exhibits.frame import normal, ruled
from gradproof.errors import UsageError
from gradproof.torch import gradcheck

QUICK = ["backward", "forward", "side_effects"]


def named(report: gradproof.Report) -> list[str]:
    return [line.partition(": ")[0] for line in report.inputs]


def outputs(report: gradproof.Report) -> list[str]:
    return [line.partition(": ")[0] for line in report.outputs]


def check(fn, inputs, kwargs=None, **options) -> gradproof.Report:
    report = gradproof.check(fn, inputs, kwargs, seed=0, **{"checks": QUICK, **options})
    assert report.verdict == "passed", str(report)
    return report


def wrong_product(w, x):
    """w * x whose gradient with respect to w is 3 times too large."""
    return ruled(lambda w, x: w * x, lambda g, w, x: (3 * (g * x).sum(0), g * w))(w, x)


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.5, -2.0, 1.5], dtype=torch.float64))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, shift=0.0):
        self.calls += 1
        return self.weight * x + shift

    def encode(self, x):
        return (self.weight * x).tanh()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([Scale(), Scale()])})
        self.norm = torch.nn.BatchNorm1d(3, dtype=torch.float64)
        self.head = self.encoder["layers"][0]  # tied
        self.drop = torch.nn.Dropout(0.4)

    def forward(self, x):
        for layer in self.encoder["layers"]:
            x = layer(x).tanh()
        return {"logits": self.head(self.drop(self.norm(x))), "loss": None, "all": [x]}


X = (5, 3)


# Layers.


def test_parameters_of_a_layer_are_inputs_by_their_names():
    report = check(Scale(), (normal(*X),))
    assert named(report) == ["x", "weight"]


def test_names_of_nested_layers_and_of_nested_outputs_are_the_users():
    report = check(Net().eval(), (normal(*X),))
    assert named(report)[1:3] == ["encoder.layers.0.weight", "encoder.layers.1.weight"]
    assert outputs(report) == ["output['logits']", "output['all'][0]"]


@pytest.mark.parametrize("training", [True, False])
def test_a_layer_keeps_its_buffers_and_its_mode(training):
    net = Net().train(training)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    check(net, (normal(*X),))
    assert net.training is training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_dropout_is_said():
    notes = " ".join(check(Net().train(), (normal(*X),)).notes)
    assert "one dropout mask" in notes
    assert not check(Net().eval(), (normal(*X),)).notes


def test_a_method_of_a_layer_is_checked_with_its_parameters():
    assert named(check(Scale().encode, (normal(*X),))) == ["x", "weight"]


def test_a_reference_may_be_another_layer_with_the_same_parameters():
    layer, x = Scale().float(), normal(*X).float()
    settings = gradproof.Settings(references=["reference"])
    report = check(layer, (x,), reference=Scale().float(), settings=settings)
    assert "the reference" in report["backward"].reference


def test_a_reference_that_reads_none_of_the_parameters_is_refused_with_the_reason():
    layer, x = Scale().float(), normal(*X).float()
    report = gradproof.check(
        layer,
        (x,),
        reference=lambda x: 2 * x,
        seed=0,
        checks=["backward"],
        settings=gradproof.Settings(references=["reference"]),
    )
    assert report.verdict == "inconclusive"
    assert "reads no tensor weight" in report["backward"].summary


# Closures and the like.

GLOBAL = torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64, requires_grad=True)


def beside(x):
    return x * GLOBAL


def test_tensors_in_closures_partials_globals_and_objects_are_named():
    weight, bias, table = normal(3, seed=2), normal(3, seed=3), {"a": [normal(3, seed=4)]}

    class Layer:
        def __init__(self):
            self.gain = normal(3, seed=5)

        def __call__(self, x):
            return self.gain * x

    def fn(x):
        return x * weight + table["a"][0] + beside(x)

    assert named(check(fn, (normal(*X),))) == ["x", "table['a'][0]", "weight", "GLOBAL"]
    partial = functools.partial(torch.addcmul, normal(3, seed=6), tensor2=bias)
    assert named(check(partial, (normal(*X),))) == ["input 0", "bound 0", "tensor2"]
    assert named(check(Layer(), (normal(*X),))) == ["x", "gain"]


def test_a_wrong_gradient_of_a_tensor_in_a_closure_fails_under_its_name():
    gain = normal(3, seed=2)
    report = gradproof.check(lambda x: wrong_product(gain, x), (normal(*X),), seed=0)
    assert {finding.input_name for finding in report["backward"].findings} == {"gain"}


def test_a_tensor_that_is_not_found_is_said_to_be_unchecked():
    class Heads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = [normal(3, seed=5)]  # no ParameterList, as PyTorch asks for

        def forward(self, x):
            return wrong_product(self.heads[0], x)

    report = check(Heads(), (normal(*X),))
    assert any("shape [3] that require grad" in note for note in report["backward"].notes)

    def made_anew(x):
        own = x.detach().requires_grad_()
        return torch.autograd.grad(own.sum(), own, create_graph=True)[0] * x

    assert not check(made_anew, (normal(*X),))["backward"].notes


def test_what_a_function_reads_is_put_back_even_when_it_raises():
    weight = normal(3, seed=2)

    def fn(x):
        if not x.requires_grad or (x != x0).any():
            raise ValueError("beside the point")
        return x * weight

    x0 = normal(*X)
    gradproof.check(fn, (x0,), seed=0, checks=["backward"])
    cell = fn.__closure__[fn.__code__.co_freevars.index("weight")]
    assert cell.cell_contents is weight


# Containers.

Pair = namedtuple("Pair", ["left", "right"])


@dataclass(frozen=True)
class Batch:
    tokens: torch.Tensor
    masks: list = field(default_factory=list)


torch.export.register_dataclass(Batch)


@dataclass(frozen=True)
class Unregistered:
    tokens: torch.Tensor


@pytest.mark.parametrize("container", [Unregistered(normal(3)), UserDict(tokens=[normal(3)])])
def test_a_container_that_pytorch_does_not_take_apart_is_refused(container):
    with pytest.raises(UsageError, match=r"b is a \w+ with tensors .*register_dataclass"):
        gradproof.check(lambda x, b: x * 2, (normal(3), container))


def test_containers_of_every_kind_are_inputs_and_outputs():
    def fn(batch, options, pair):
        total = batch.tokens * batch.masks[0] + options["mask"][1] + pair.left
        return Batch(total, [None, {"b": pair.right.exp()}])

    inputs = (
        Batch(normal(3), [normal(3, seed=2)]),
        OrderedDict(mask=(3, normal(3, seed=3))),
        Pair(normal(3, seed=4), normal(2, seed=5)),
    )
    report = check(fn, inputs)
    assert named(report) == [
        "batch.tokens",
        "batch.masks[0]",
        "options['mask'][1]",
        "pair.left",
        "pair.right",
    ]
    assert outputs(report) == ["output.tokens", "output.masks[1]['b']"]


def test_keyword_arguments_are_inputs():
    report = check(lambda x, *, shift: x.exp() + shift, (normal(3),), {"shift": normal(3)})
    assert named(report) == ["x", "shift"]


# wrt.


@pytest.mark.parametrize(
    ("wrt", "expected"),
    [
        ("x", ["x"]),
        (0, ["x"]),
        ("encoder", ["encoder.layers.0.weight", "encoder.layers.1.weight"]),
        (["norm.*", 0], ["x", "norm.weight", "norm.bias"]),
        ("*.1.weight", ["encoder.layers.1.weight"]),
    ],
)
def test_wrt_selects_by_name_pattern_and_position(wrt, expected):
    assert named(check(Net().eval(), (normal(*X),), wrt=wrt)) == expected


def test_wrt_that_selects_nothing_says_what_there_is():
    with pytest.raises(UsageError, match=r"wrt: 'gain' selects no .* there are x, weight"):
        gradproof.check(Scale(), (normal(*X),), wrt="gain")


# What has no coordinates.


def test_nested_and_masked_tensors_are_refused_in_one_sentence():
    jagged = torch.nested.nested_tensor_from_jagged(normal(5, 2), torch.tensor([0, 2, 5]))
    leaf = jagged.detach().requires_grad_()
    with pytest.raises(UsageError, match=r"^x is a nested tensor.*plain tensor"):
        gradproof.check(lambda x: x.sin().values(), (leaf,))
    with pytest.raises(UsageError, match=r"is a nested tensor.*plain tensor"):
        gradcheck(lambda x: x.sin().values(), (leaf,))
    with pytest.raises(UsageError, match=r"^output 0 of .* is a nested tensor"):
        gradproof.check(
            lambda v: torch.nested.nested_tensor_from_jagged(v, torch.tensor([0, 2, 5])),
            (normal(5, 2),),
        )
    with pytest.warns(UserWarning, match="PyTorch API of MaskedTensors is in prototype"):
        masked = torch.masked.masked_tensor(
            torch.ones(2, dtype=torch.float64), torch.tensor([True, False]), requires_grad=True
        )
    with pytest.raises(UsageError, match=r"^x is a MaskedTensor.*plain tensors"):
        gradproof.check(lambda x: x * 2, (masked,))


def layer_with_a_hook(hook):
    layer = torch.nn.Linear(3, 2, dtype=torch.float64)
    layer.weight.register_hook(hook)
    return layer


@pytest.mark.parametrize("seed", range(5))
def test_a_hook_of_a_parameter_is_part_of_what_backward_gives(seed):
    wrong, right = layer_with_a_hook(lambda g: g / 2), layer_with_a_hook(lambda _: None)
    report = gradproof.check(wrong, (normal(4, 3),), seed=seed)
    assert report["backward"].verdict == "failed"
    assert {finding.input_name for finding in report["backward"].findings} == {"weight"}
    assert gradproof.check(right, (normal(4, 3),), seed=seed).verdict == "passed"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_hook_that_is_off_by_little_counts_in_every_precision_and_layout(dtype):
    x = normal(3, 2).detach().to(dtype).requires_grad_()
    x.register_hook(lambda g: 1.01 * g)
    report = gradproof.check(torch.sin, x, seed=0)
    assert report["backward"].verdict == "failed"
    assert report["memory_layout"].verdict == "passed"


def test_a_hook_of_an_input_is_too_as_in_pytorchs_gradcheck():
    x = normal(4)
    x.register_hook(lambda g: g / 2)
    assert not torch.autograd.gradcheck(torch.sin, (x,), raise_exception=False)
    assert not gradcheck(torch.sin, (x,), raise_exception=False)


class Coded(torch.nn.Module):
    """A layer with a tensor that is neither a parameter nor a buffer."""

    def __init__(self):
        super().__init__()
        self.code = normal(3)

    def forward(self, x):
        return x * self.code.detach()


def test_a_plain_tensor_of_a_layer_is_found():
    report = gradproof.check(Coded(), (normal(2, 3),), seed=0)
    assert report.verdict == "passed"
    assert any("no gradient reaches code" in note for note in report.notes)
    assert gradproof.check(Coded(), (normal(2, 3),), wrt="code", seed=0).verdict == "failed"
