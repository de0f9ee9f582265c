"""The history of LBFGS, which a program whose values are unknown would never fill."""

import pytest


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_history_is_full(record, search):
    """Ten directions and ten steps, each as large as the parameters; with them the direction and the last gradient."""
    run = record(
        f"""
        import torch
        model = torch.nn.Linear(1023, 256, bias=False).cuda()
        optimizer = torch.optim.LBFGS(model.parameters(), history_size=10, line_search_fn={search!r})
        source = torch.randn(8, 1023, device="cuda")
        def closure():
            optimizer.zero_grad(); loss = model(source).square().mean(); loss.backward(); return loss
        for _ in range(99): optimizer.step(closure)
        """
    )
    assert run.bye["reason"] == "steps", run.errors
    sizes = {line[1]: line[2] for line in run.of("a")}
    state = [sizes[line[1]] for line in run.of("r") if line[2] == "optimizer"]
    assert state.count(1023 * 256 * 4) >= 22
    assert ("history taken as full", "LBFGS remembers 10 iterations") in run.approximations()
