"""The dispatch mode that sees every operator: tensors on the card are fake, their storages are noted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from . import counts, current_device, custom_operators, data_dependent, kernels, subclasses, transfers, values
from .joins import Joins
from .kernels import Inside
from .recording import Recording
from .roles import tensors_in
from .storages import OPTIONAL, TEMPORARY, WORKSPACE

aten = torch.ops.aten
#: Whose kernels allocate nothing beyond what a rule says. Of others only the outputs are known.
_KNOWN_NAMESPACES = {
    "aten",
    "prims",
    "prim",
    "profiler",
    "torchvision",
    "bitsandbytes",
    "c10d",
    "_c10d_functional",
    "fsdp",
}
_DEVICE = torch.ops.prim.device.default


@dataclass
class Operator:
    """What is known of an operator once it was seen."""

    name: str
    allocates: bool
    mutates: bool
    composite: bool
    rule: kernels.Rule | None
    gemm: bool
    special: Callable[..., Any] | None
    random: bool
    unknown: bool


class _Thread(threading.local):
    ready = False


#: Writes values into what it gets and returns nothing that is new.
_FILLS = {"uniform_", "normal_", "zero_", "fill_", "random_", "exponential_", "bernoulli_",
          "trunc_normal_", "log_normal_", "geometric_", "cauchy_"}  # fmt: skip


class CardMode(TorchDispatchMode):
    """Runs operators of tensors on the card in PyTorch's fake mode, and those of the processor for real."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.card = recording.settings.card
        self.gemm = kernels.GemmWorkspaces(self.card, recording.storages)
        self.joins = Joins()
        self._calibrated = False
        self._operators: dict[OpOverload, Operator] = {}
        self._thread = _Thread()
        # A fake mode is of one thread at a time, and each card has a thread of autograd.
        self._lock = threading.RLock()
        self._tensor_types = {torch.Tensor, torch.nn.Parameter, FakeTensor}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether PyTorch wraps the method below for its compiler, which costs time: here nothing is compiled."""
        return False

    def _learn(self, func: OpOverload) -> Operator:
        schema = func._schema
        name = schema.name.split("::")[1]
        is_aten = func.namespace in ("aten", "prims")
        operator = Operator(
            name=schema.name,
            allocates=any(returned.alias_info is None for returned in schema.returns) or name in ("resize_", "set_"),
            mutates=schema.is_mutable,
            composite=is_aten and func._can_decompose(),
            rule=kernels.rule_of(schema.name),
            gemm=is_aten and name in kernels.GEMMS,
            special=transfers.SPECIAL.get(func),
            random=any(argument.name == "generator" for argument in schema.arguments),
            unknown=func.namespace not in _KNOWN_NAMESPACES,
        )
        if is_aten and name in _FILLS:
            operator.special = transfers.fill
        if is_aten and name.startswith("_foreach_") and name.endswith("_"):
            operator.special = transfers.write_list
        self._operators[func] = operator
        return operator

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run an operator."""
        if func is _DEVICE and type(args[0]) is FakeTensor:
            return args[0].fake_device  # asked for at every turn
        kwargs = kwargs or {}
        if subclasses.both and not subclasses.both.isdisjoint(types):
            if func._schema.name in subclasses.RESHAPING and type(args[0]) in subclasses.both:
                return subclasses.reshape(self, func, args, kwargs)
            args, kwargs = subclasses.without((args, kwargs))
            types = (FakeTensor, *(kind for kind in types if kind not in subclasses.both))
            if func is _DEVICE:
                return args[0].fake_device
        if not self._thread.ready:
            # Tensors from lists are made on the processor and then moved. The flag is one of each thread.
            torch._C._set_only_lift_cpu_tensors(True)
            self._thread.ready = True
        operator = self._operators.get(func) or self._learn(func)
        if operator.composite:
            with self:  # it comes whole where autograd does not take it apart: in inference mode, in custom operators
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        fake = FakeTensor in types
        if not fake or len(types) > 1:
            if any(self._dispatches_itself(kind) for kind in types):
                return NotImplemented  # a subclass such as DTensor unwraps itself first
            args, kwargs, lost = self._rewrap_lost(args, kwargs, types)
            fake = fake or lost
        if not fake:
            device = kwargs.get("device")
            if device is None or torch.device(device).type != "cuda":
                if kwargs.get("pin_memory"):
                    kwargs = {**kwargs, "pin_memory": False}
                return func(*args, **kwargs)
        if kwargs.get("device") is not None:
            asked = torch.device(kwargs["device"])
            if asked.type == "cuda":
                # The fake mode keeps results by their arguments, and the current card is none of these.
                index = current_device.index() if asked.index is None else current_device.check(asked.index)
                kwargs = {**kwargs, "device": torch.device("cuda", index)}
        with self._lock:
            if operator.special is not None:
                result = operator.special(self, func, operator, args, kwargs, fake)
                if result is not NotImplemented:
                    return result
            return self.run(func, operator, types, args, kwargs)

    def _dispatches_itself(self, kind: type) -> bool:
        """Whether a class of tensors has a dispatch of its own."""
        return (
            kind not in self._tensor_types
            and getattr(kind, "__torch_dispatch__", None) is not torch._C._disabled_torch_dispatch_impl
        )

    def before_backward(self) -> None:
        """Learn what the engine's references look like. At import a thread of the engine could not run Python."""
        self.joins.transformed = torch._C._functorch.peek_interpreter_stack() is not None
        if not self._calibrated:
            self._calibrated = True
            self.joins.calibrate(self)

    def run(
        self,
        func: OpOverload,
        operator: Operator,
        types: Sequence[type],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run an operator on the card: its kernel's own allocations, its outputs, its known values."""
        if operator.unknown:
            result = custom_operators.run(self, func, args, kwargs)
            if result is not NotImplemented:
                return result
            self.recording.approximate_here("unknown operator", operator.name)
        known = values.compute(func, operator, args, kwargs)
        fake_args, fake_kwargs = self._without_data(args, kwargs)
        joined = self.joins.in_place(func, fake_args)
        if joined is not None:
            return joined
        try:
            result = self.fake.dispatch(func, types, fake_args, fake_kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException):
            result = data_dependent.run(self, func, fake_args, fake_kwargs, known)
        self.note(func, operator, fake_args, fake_kwargs, result)
        values.keep(func, operator, args, result, known)
        counts.follow(operator.name, fake_args, result)
        return result

    def note(
        self,
        func: OpOverload,
        operator: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> None:
        """Note what an operator allocated."""
        storages = self.recording.storages
        inside = operator.rule(self.card, args, kwargs, result) if operator.rule else None
        device = kernels.device_of(args) if inside or operator.gemm else 0
        held: list[int] = []
        if inside:
            self._take_and_give(operator, inside.before, device, held)
        if inside and inside.brief:
            brief = [storages.take(size, operator.name, TEMPORARY, device) for size in inside.brief]
            for block in brief:
                storages.give(block)
        if inside and inside.order is not None:
            for index in inside.order:
                storages.see(result[index], operator.name)
        elif inside and (inside.each or inside.tried):
            self._see_each(operator, inside, result, device)
        elif operator.allocates:
            if type(result) is FakeTensor:
                if result.fake_device.type == "cuda":
                    storages.see(result, operator.name)
            else:
                for tensor in tensors_in(result):
                    if tensor.device.type == "cuda":
                        storages.see(tensor, operator.name)
        if operator.name in ("aten::resize_", "aten::resize_as_"):
            storages.resized(args[0].untyped_storage(), operator.name)
        if operator.gemm:
            self.gemm.use(operator.name, args)
        if inside:
            if inside.gemm:
                self.gemm.use(operator.name, args)
            self._take_and_give(operator, inside.after, device, held)
            if inside.last is not None:
                storages.see(inside.last, operator.name)
            for size in inside.stays:
                storages.take(size, operator.name, WORKSPACE, device)
            if inside.unknown:
                self.recording.approximate("kernel not modelled", inside.unknown)
            if inside.bound:
                self.recording.approximate("kernel by rule", operator.name, max(inside.after))
        for block in held:
            storages.give(block)

    def _see_each(self, operator: Operator, inside: Inside, result: Any, device: int) -> None:
        """Note the outputs, and after each what its kernel allocates and frees."""
        storages = self.recording.storages
        outputs = result if isinstance(result, (list, tuple)) else (result,)
        for number, output in enumerate(outputs):
            if output is None:
                continue
            storages.see(output, operator.name)
            if inside.tried and number < 2:
                self.recording.on_trials((inside.tried, number))
            for size in inside.each.get(number, ()):
                storages.give(storages.take(size, operator.name, OPTIONAL, device))
                self.recording.approximate("kernel by rule", inside.rule or operator.name, size)

    def _take_and_give(self, operator: Operator, sizes: Sequence[int], device: int, held: list[int]) -> None:
        """Note what a kernel allocates and frees after its outputs; what it keeps goes to `held`."""
        storages = self.recording.storages
        taken: list[int | None] = []
        for size in sizes:
            if size >= 0:
                taken.append(storages.take(size, operator.name, TEMPORARY, device))
            else:
                block = taken[-size - 1]
                taken[-size - 1] = None
                if block is not None:
                    storages.give(block)
        held += [block for block in taken if block is not None]

    def _without_data(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with each real tensor replaced by one without data, and nothing pinned."""
        if any(type(tensor) is not FakeTensor for tensor in tensors_in(args)) or any(
            type(tensor) is not FakeTensor for tensor in tensors_in(kwargs)
        ):
            args, kwargs = tree_map_only(torch.Tensor, self.fake_of, (args, kwargs))
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        if kwargs.get("generator") is not None:
            kwargs = {**kwargs, "generator": None}
        return args, kwargs

    def fake_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the same form without data, on the tensor's own device."""
        if isinstance(tensor, FakeTensor):
            return tensor
        return self.empty(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)

    def empty(
        self,
        shape: Sequence[int],
        stride: Sequence[int],
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> FakeTensor:
        """A new tensor without data. Its storage is not noted yet."""
        meta = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        device = torch.device(device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", current_device.index())
        return FakeTensor(self.fake, meta, device)

    def bare(self, tensor: torch.Tensor) -> torch.Tensor:
        """The storage of a tensor on the card as PyTorch holds it, without the class that makes it fake."""
        meta = torch.empty(0, dtype=tensor.dtype, device="meta")
        return meta.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())

    def _rewrap_lost(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], types: Sequence[type]
    ) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
        """Tensors that lost their class: `subclass.data = fake` keeps the storage and forgets that it is fake."""
        found = False

        def rewrap(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal found
            if isinstance(tensor, FakeTensor) or tensor.device.type not in ("cuda", "meta"):
                return tensor
            if not self.recording.storages.is_known(tensor.untyped_storage()):
                return tensor
            found = True
            card = torch.device("cuda", current_device.index())
            return FakeTensor(self.fake, self.bare(tensor), card)

        if any(
            type(tensor) is not torch.Tensor and type(tensor) is not FakeTensor for tensor in tensors_in((args, kwargs))
        ):
            args, kwargs = tree_map_only(torch.Tensor, rewrap, (args, kwargs))
        return args, kwargs, found
