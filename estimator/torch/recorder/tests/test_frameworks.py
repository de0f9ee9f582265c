"""What training frameworks ask of PyTorch, beyond what a plain loop asks."""

MODEL = """
import torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.Adam(model.parameters())
"""


def test_length_of_a_count(record):
    """torchmetrics counts pairs of classes, and makes a square matrix of the counts."""
    run = record(
        """
        import torch
        pairs = torch.randn(128, 10, device="cuda").argmax(1) * 10 + torch.randint(10, (128,), device="cuda")
        print(torch.bincount(pairs, minlength=100).reshape(10, 10).dtype)
        print(torch.bincount(pairs, torch.rand(128, device="cuda"), 100).dtype, torch.bincount(pairs).numel())
        """
    )
    assert run.output.split() == ["torch.int64", "torch.float32", "128"], run.errors
    assert ("data-dependent size", "aten::bincount") in run.approximations()


def test_what_a_parallel_network_says_of_its_graph(record):
    """Lightning asks for it when a training is over."""
    run = record(
        MODEL
        + """
import torch.distributed as dist
dist.init_process_group("nccl", rank=0, world_size=2)
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
model(torch.randn(8, 64, device="cuda")).sum().backward(); optimizer.step()
print(model._get_ddp_logging_data().get("can_set_static_graph"))
""",
        devices=2,
    )
    assert (run.status, run.output) == (0, "None\n"), run.errors


KINDS = """
import torch
class Kind(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, Kind) and isinstance(args[0], torch.Tensor):
            result.__dict__ = dict(args[0].__dict__)  # so does fastai
        return result
class Other(torch.Tensor): pass
"""


def test_tensors_with_a_class_of_the_program(record):
    run = record(
        KINDS
        + """
image = torch.zeros(4, 64).as_subclass(Kind); image.label = "first"
there = image.to("cuda")
print(type(there).__name__, isinstance(there, Kind), there.device, there.label)
half = (there[:2] + 1).half()
print(isinstance(half, Kind), half.device, half.dtype, tuple(half.shape), half.label)
plain = half.as_subclass(torch.Tensor)
print(isinstance(plain, Kind), plain.device, isinstance(plain.as_subclass(Other), Other))
back = there.cpu()
print(type(back) is Kind, back.sum().item(), there.add_(1) is there)
"""
    )
    assert run.output.splitlines() == [
        "Kind True cuda:0 first",
        "True cuda:0 torch.float16 (2, 64) first",
        "False cuda:0 True",
        "True 0.0 True",
    ], run.errors


def test_class_of_the_program_changes_no_figure(record):
    """The gradient goes through `as_subclass`, and no tensor is made for it."""
    train = """
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(9):
    batch = torch.randn(8, 64).cuda()CLASS
    loss = (model(batch) - batch).pow(2).mean()
    loss.backward(); optimizer.step(); optimizer.zero_grad()
"""
    with_class = record(KINDS + train.replace("CLASS", ".as_subclass(Kind)"))
    births, bye = with_class.births(), with_class.bye
    plain = record(KINDS + train.replace("CLASS", ""))
    assert bye["reason"] == "steps", with_class.errors
    assert (births, bye["steps"]) == (plain.births(), plain.bye["steps"])


def _package(folder, name, text):
    """A module of this name, with packages above it."""
    *above, last = name.split(".")
    for part in above:
        folder /= part
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
    (folder / f"{last}.py").write_text(text)


FASTAI = """
class _BaseOptimizer:
    def all_params(self):
        return [(p, self.state[p]) for group in self.param_lists for p in group]
    @property
    def param_groups(self): return [{"params": group} for group in self.param_lists]
    @param_groups.setter
    def param_groups(self, value): pass

class Optimizer(_BaseOptimizer):
    def __init__(self, params):
        self.param_lists = [list(params)]; self.state = {p: {"do_wd": False} for p in self.param_lists[0]}
    def zero_grad(self):
        for p, state in self.all_params():
            if p.grad is not None: p.grad.zero_()
    def step(self):
        for p, state in self.all_params():
            assert state["do_wd"] is False
            state.setdefault("average", p.grad.clone()); p.data.add_(p.grad)
"""


def test_optimizer_of_fastai(record, tmp_path):
    """It is not PyTorch's, and has its parameters before the model is moved."""
    _package(tmp_path, "fastai.optimizer", FASTAI)
    run = record(
        """
        import torch, fastai.optimizer
        model = torch.nn.Linear(64, 64)
        optimizer = fastai.optimizer.Optimizer(model.parameters())
        model.cuda()
        for _ in range(99):
            model(torch.randn(8, 64, device="cuda")).sum().backward(); optimizer.step(); optimizer.zero_grad()
        """
    )
    assert (run.bye["reason"], run.bye["steps"]) == ("steps", 3), run.errors
    roles = [line[2] for line in run.of("r")]
    assert [roles.count(role) for role in ("parameter", "gradient", "optimizer")] == [2, 2, 2]


KERAS = """
import torch
class Variable:
    def __init__(self, value): self._value = torch.nn.Parameter(value)
class BaseOptimizer:
    def __init__(self, trainable):
        self._trainable_variables = trainable
        self.variables = [Variable(torch.zeros_like(v._value)) for v in trainable]
    def apply(self, grads):
        for grad, v, state in zip(grads, self._trainable_variables, self.variables):
            state._value.data.add_(grad); v._value.data.sub_(state._value)
"""


def test_optimizer_of_keras(record, tmp_path):
    _package(tmp_path, "keras.src.optimizers.base_optimizer", KERAS)
    run = record(
        """
        import torch
        from keras.src.optimizers.base_optimizer import BaseOptimizer, Variable
        class Adam(BaseOptimizer): pass
        weight = Variable(torch.zeros(64, 64, device="cuda"))
        optimizer = Adam([weight])
        for _ in range(99):
            weight._value.grad = None
            (torch.randn(8, 64, device="cuda") @ weight._value).sum().backward(); optimizer.apply([weight._value.grad])
        """
    )
    assert run.bye["reason"] == "steps", run.errors
    assert {"optimizer": "Adam"} in [line[1] for line in run.of("i")]
    assert {line[2] for line in run.of("r")} >= {"parameter", "gradient", "optimizer"}


def test_two_steps_like_the_two_before(record):
    """fastai's batches die two at a time, at every second step."""
    run = record(
        MODEL
        + """
held = []
for i in range(99):
    batch = torch.randn(8, 64, device="cuda"); held.append(batch)
    if i % 2: held.clear()
    optimizer.zero_grad(); model(batch).sum().backward(); optimizer.step()
"""
    )
    assert run.bye["reason"] == "steps"
    assert run.bye["steps"] < 8
    assert not run.of("x")


def test_a_network_that_is_dropped_gives_its_memory_back(record):
    """Folds of a cross-validation have a network each, one after the other."""
    run = record(
        """
        import gc, torch
        for fold in range(3):
            model = torch.nn.Sequential(torch.nn.Linear(512, 512, bias=False), torch.nn.ReLU()).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=1)
            model(torch.randn(4, 512, device="cuda")).sum().backward(); optimizer.step()
            print(torch.cuda.memory_allocated() - before if fold else "first")
            del model, optimizer; gc.collect(); before = torch.cuda.memory_allocated()
        """,
        steps=9,
    )
    # Parameters and gradients.
    assert run.output.split() == ["first", "2097152", "2097152"], run.errors
    assert [line[2] for line in run.of("r")].count("parameter") == 3


def test_operators_that_a_package_writes_in_python(record):
    """unsloth's loss makes its logits inside of one. What calls compiled code has nothing but its form."""
    run = record(
        """
        import os, torch
        @torch.library.custom_op("package::loss", mutates_args=())
        def loss(hidden: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
            return torch.stack([(hidden @ part.t()).sum() for part in head.chunk(2)]).sum()
        @loss.register_fake
        def _(hidden, head):
            return hidden.new_empty(())
        @torch.library.custom_op("package::compiled", mutates_args=(), device_types="cuda")
        def compiled(hidden: torch.Tensor) -> torch.Tensor:
            address = hidden.data_ptr()
            os._exit(1)  # as bitsandbytes does where there is no driver
        @compiled.register_fake
        def _(hidden):
            return torch.empty_like(hidden)
        hidden, head = torch.randn(64, 32, device="cuda"), torch.randn(4000, 32, device="cuda")
        print(loss(hidden, head).shape, compiled(hidden).shape)
        """
    )
    assert run.output == "torch.Size([]) torch.Size([64, 32])\n", run.errors
    assert [birth[0] for birth in run.births() if birth[1:] == ("aten::mm", 0)] == [64 * 2000 * 4] * 2
    assert run.approximations() == {("unknown operator", "package::compiled")}


def test_a_recurrent_layer_that_is_dropped_gives_its_memory_back(record):
    """Its weights are views of one buffer, which the operator that makes it so puts in their place."""
    run = record(
        """
        import gc, torch
        for _ in range(3):
            layer = torch.nn.LSTM(256, 256).cuda(); held = torch.cuda.memory_allocated()
            del layer; gc.collect(); print(held, torch.cuda.memory_allocated())
        buffer = torch.zeros(4096, device="cuda"); view = torch.empty(0, device="cuda")
        view.set_(buffer.untyped_storage(), 0, (64, 64), (64, 1)); print(torch.cuda.memory_allocated())
        del buffer, view; gc.collect(); print(torch.cuda.memory_allocated())
        """
    )
    weights = (256 * 256 * 8 + 256 * 8) * 4
    assert run.output.splitlines() == [f"{weights} 0"] * 3 + ["16384", "0"], run.errors
