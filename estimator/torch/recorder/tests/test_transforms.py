"""Functions that `torch.func` transforms: gradients of each sample, and of a field at each point."""

FIELD = """
import torch
from torch.func import functional_call, grad, jacrev, vmap
net = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).cuda()
def field(point): return functional_call(net, dict(net.named_parameters()), (point,)).squeeze(-1)
points = torch.rand(32, 3, device="cuda")
"""


def test_a_field_and_its_gradient_at_each_point(record):
    run = record(
        FIELD
        + """
optimizer = torch.optim.Adam(net.parameters())
for _ in range(9):
    normals = vmap(jacrev(field))(points)
    loss = (normals.norm(dim=-1) - 1).pow(2).mean() + field(points).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
print(tuple(normals.shape), tuple(vmap(jacrev(grad(field)))(points).shape))
""",
        steps=99,
    )
    assert run.output == "(32, 3) (32, 3, 3)\n", run.errors
    roles = [line[2] for line in run.of("r")]
    assert (roles.count("parameter"), roles.count("gradient"), roles.count("optimizer")) == (4, 36, 8)


def test_bias_of_a_linear_layer_is_added_out_of_place(record):
    run = record(
        """
        import torch
        layer = torch.nn.Linear(4, 8).cuda()
        print(tuple(torch.func.vmap(lambda x: layer(x[None]))(torch.zeros(16, 4, device="cuda")).shape))
        print(tuple(torch.func.vmap(layer)(torch.zeros(16, 2, 4, device="cuda")).shape))
        """
    )
    assert run.output.splitlines() == ["(16, 1, 8)", "(16, 2, 8)"], run.errors


def test_gradients_meet_out_of_place(record):
    """PyTorch's engine adds in place, but not to a tensor of a transform (`isTensorSubclassLike`)."""
    script = """
import torch
start = torch.rand(4096, device="cuda", requires_grad=PLAIN)
def use(x): y = x * 2; return (y.sin() + y.cos()).sum()
"""
    plain = record(script.replace("PLAIN", "True") + "use(start).backward()")
    transformed = record(script.replace("PLAIN", "False") + "torch.func.grad(use)(start)")
    sums = [sum((size, name) == (16384, "aten::add") for size, name, _ in run.births()) for run in (plain, transformed)]
    assert sums == [1, 2], (plain.errors, transformed.errors)
