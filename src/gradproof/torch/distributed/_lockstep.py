"""Communication between the ranks beside the user's collectives, which keeps them in step.

It uses a gloo group of its own, so that it never mixes with a collective of the user's. Before a
collective of all ranks begins, the ranks compare which one it is; a rank that raises or returns
instead says so at the same place. So a mistake in the order of collectives ends in a sentence on
every rank instead of a dead-lock. Messages between two ranks, and collectives of some ranks, cannot
be compared in advance: a rank that waits there in vain is lost to the others.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.tensor import DTensor

from gradproof._data.exceptions import exception_line, first_line
from gradproof._data.frames import is_our_mistake
from gradproof._data.visible import join_words
from gradproof._maps.contract import Unsupported
from gradproof.errors import UsageError
from gradproof.torch._compat import TorchDispatchMode
from gradproof.torch._tree import tensors_in
from gradproof.torch.distributed._compat import AsyncCollectiveTensor, default_store, process_groups

Result = TypeVar("Result")

_PATIENCE = 60.0  # seconds that a rank waits for another, where the user says none
# One rank may give up a collective just before another begins the next one, which it then gives up
# in turn; a message sent afterwards waits for both.
_LONGER = 3.0
_NAMESPACES = ("c10d", "_c10d_functional")  # namespaces of collectives
_WRAPPERS = (DTensor, AsyncCollectiveTensor)  # tensors that other tensors are behind
# Parts of the names of what is none in them.
_NO_COLLECTIVES = ("send", "recv", "monitored", "wait_tensor", "wrap_tensor", "unsafe")


class LostRankError(BaseException):
    """A rank is lost, so that nothing more can be agreed on. No finding, so no Exception."""


class DivergedError(RuntimeError):
    """The ranks call different collectives, or different numbers of them."""


class RemoteError(RuntimeError):
    """The user's code raised on one rank; this is raised on every rank."""


@dataclass(frozen=True)
class Event:
    """What a rank does: it begins a collective, has raised, or else has returned."""

    calls: str = ""  # the collective
    raised: Exception | None = None  # as it is raised on every rank


class Ranks:
    """The ranks of a group, this one among them, and a group of their own.

    UsageError where there is no process group, this rank is not in it, or others do not come.

    Attributes:
        names: rank of each in the whole job, as the user knows it.
        rank: place of this one among them.
        patience: seconds that a rank waits for another; a minute where None.
    """

    def __init__(self, group: Any, patience: float | None) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise UsageError(
                "group: no process group: call torch.distributed.init_process_group() first, on "
                "every rank, as under torchrun"
            )
        if group == dist.GroupMember.NON_GROUP_MEMBER:
            raise UsageError("group: this rank is not in it; call check on its ranks alone")
        self.names: list[int] = dist.get_process_group_ranks(group or dist.group.WORLD)
        self.rank = self.names.index(dist.get_rank())
        self.patience = _PATIENCE if patience is None else patience
        self._store = c10d.PrefixStore(f"gradproof/{self.names}", default_store())
        self._store = c10d.PrefixStore(f"turn {self._arrive()}", self._store)
        wait = timedelta(seconds=self.patience)
        # Not by new_group, which would find the addresses of an earlier group of the same ranks.
        self._group: Any = c10d.ProcessGroupGloo(self._store, self.rank, len(self), wait)

    def __len__(self) -> int:
        return len(self.names)

    def close(self) -> None:
        """End the group of their own: a rank that still waits for this one learns it."""
        del self._group

    # What the ranks tell each other.

    def _arrive(self) -> int:
        """Wait until every rank has come, and count such meetings; UsageError if one has not."""
        counter = f"count {self.rank}"
        turn = self._store.add(counter, 1)
        if missing := self._absent_ranks(str(turn), self.patience):
            self._store.add(counter, -1)
            self._store.delete_key(f"{turn}/{self.rank}")
            raise UsageError(
                f"group: {self.rank_names(missing)} did not call check within {self.patience:g} "
                "seconds; call it on every rank"
            )
        return int(turn)

    def _absent_ranks(self, what: str, seconds: float) -> list[int]:
        """Say that this rank is here, and wait for the others; places of those that are not."""
        keys = [f"{what}/{rank}" for rank in range(len(self))]
        self._store.set(keys[self.rank], "")
        with suppress(RuntimeError):  # time is up
            self._store.wait(keys, timedelta(seconds=seconds))
        return [place for place, key in enumerate(keys) if not self._store.check([key])]

    def rank_names(self, places: Sequence[int]) -> str:
        """Some of the ranks, as people write them: "ranks 1 and 3"."""
        noun = "rank" if len(places) == 1 else "ranks"
        return f"{noun} {join_words([str(self.names[place]) for place in places])}"

    def gather_objects(self, value: Any) -> list[Any]:
        """One object of every rank, by rank."""
        return [self.broadcast_object(value, sender) for sender in range(len(self))]

    def broadcast_object(self, value: Any = None, sender: int = 0, forever: bool = False) -> Any:
        """The object of one rank; the others may wait `forever` while it computes."""
        sent = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        size = torch.tensor([len(sent)])
        self._broadcast(size, sender, forever)
        if self.rank != sender:
            sent = torch.empty(int(size), dtype=torch.uint8)
        self._broadcast(sent, sender)
        return pickle.loads(sent.numpy().tobytes())

    def _broadcast(self, tensor: torch.Tensor, sender: int, forever: bool = False) -> None:
        """Send a tensor, or write into it what is sent, for as long as the ranks have to come.

        LostRankError names who does not come.
        """
        options = dist.BroadcastOptions()
        options.rootRank = sender
        limit = timedelta(days=1) if forever else timedelta(seconds=_LONGER * self.patience)
        self._group._set_default_timeout(limit)
        try:
            self._group.broadcast([tensor], options).wait(limit)
        except RuntimeError as error:
            raise LostRankError(self._missing_ranks(first_line(error))) from None

    def _missing_ranks(self, reason: str) -> str:
        """A sentence on the ranks that have not come, the same on every rank."""
        if self._store.check(["lost"]):
            return str(self._store.get("lost").decode())
        missing = self._absent_ranks("here", min(1.0, self.patience))
        message = f"the ranks lost each other: {reason}"
        if missing:
            message = (
                f"{self.rank_names(missing)} did not come back from a call of the function within "
                f"{_LONGER * self.patience:g} seconds, or ended; the process group cannot be used "
                "again"
            )
        self._store.set("lost", message)
        return message

    # A call of the user's code on all ranks at once.

    def run_together(self, run: Callable[[], Result]) -> Result:
        """The result of `run` if it returns on every rank; otherwise one exception on all ranks."""
        found: Any = None
        step, event = Lockstep(self), Event()
        try:
            with step:
                found = run()
        except Exception as error:
            if step.events is None and is_our_mistake(error):
                raise
            if not isinstance(error, (UsageError, Unsupported)):  # these the engine knows
                error = RemoteError(f"rank {self.names[self.rank]} raised {exception_line(error)}")
            event = Event("", error)
        events = self.gather_objects(event) if step.events is None else step.events
        for event in events:
            if event.raised is not None:
                raise event.raised
        does = [f"calls {event.calls}" if event.calls else "returned" for event in events]
        if any(event.calls for event in events):
            groups = [
                f"{self.rank_names([p for p, each in enumerate(does) if each == one])} {one}"
                for one in dict.fromkeys(does)
            ]
            raise DivergedError(f"the ranks call different collectives: {', '.join(groups)}")
        return cast("Result", found)  # nothing was raised


class Lockstep(TorchDispatchMode):
    """Meanwhile every collective of all ranks begins only when all begin the same one.

    `events` are what the ranks did where they did not do the same; None so far.
    """

    def __init__(self, ranks: Ranks) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch's
        self._ranks = ranks
        self.events: list[Event] | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(issubclass(kind, _WRAPPERS) for kind in types):
            return NotImplemented  # they say first which collectives they need
        if func.namespace in _NAMESPACES and not any(
            part in func.__name__ for part in _NO_COLLECTIVES
        ):
            group = _group_of(args)
            if group is None or group.size() == len(self._ranks):
                self._meet(func, args)
        return func(*args, **(kwargs or {}))

    def _meet(self, func: Any, args: tuple[Any, ...]) -> None:
        if self.events is None:
            events = self._ranks.gather_objects(Event(_collective_name(func, args)))
            if len(set(events)) == 1:
                return
            self.events = events
        raise DivergedError("another rank does something else")


def _group_of(args: Sequence[Any]) -> Any:
    """The process group among the arguments of a collective."""
    for value in args:
        kind: Any = value._type() if isinstance(value, torch.ScriptObject) else None
        if kind is not None and kind.name() == "ProcessGroup":
            return dist.ProcessGroup.unbox(value)
    named: dict[str, Any] = {group.group_name: group for group in process_groups()}
    names = [value for value in args if isinstance(value, str) and value in named]
    return named[names[-1]] if names else None


def _collective_name(func: Any, args: Sequence[Any]) -> str:
    """A collective as people know it: its name, and the dtype of what is sent."""
    name = func._schema.name.partition("::")[2].strip("_")
    dtypes = {str(tensor.dtype).partition(".")[2] for tensor in tensors_in(args)}
    return f"{name} of {' and '.join(sorted(dtypes))}" if dtypes else str(name)
