"""What a program decides by a value takes the branch that it would take on a card."""


def test_known_values_are_exact(record):
    run = record(
        """
        import torch
        labels = torch.tensor([1, -100, 3], device="cuda")
        kept = labels != -100
        print(int(kept.sum()), labels[kept].tolist(), bool(kept.all()), labels.max().item())
        mask = torch.ones(4, 4).tril().cuda()
        print(torch.equal(mask, torch.tril(torch.ones(4, 4, device="cuda"))))
        view = labels[:2]; view.add_(1); print(labels.tolist())
        """
    )
    assert run.output.splitlines() == ["2 [1, 3] False 3", "True", "[2, -99, 3]"]
    assert not run.of("x")


def test_unknown_values_are_zero_and_named(record):
    run = record(
        """
        import torch
        weight = torch.randn(4, device="cuda")
        print(weight.sum().item(), bool((weight > 0).any()), weight.cpu().tolist())
        labels = torch.tensor([1, 2], device="cuda"); labels.copy_(torch.randint(0, 9, (2,), device="cuda"))
        print(labels.tolist())
        """
    )
    assert run.output.splitlines() == ["0.0 False [0.0, 0.0, 0.0, 0.0]", "[0, 0]"]
    assert ("value read as zero", "a scalar that came from the card") in run.approximations()


def test_size_that_depends_on_data_is_a_bound(record):
    run = record(
        """
        import torch
        x = torch.randn(100, device="cuda")
        print(x[x > 0].shape[0], torch.nonzero(x > 0).shape[0])
        """
    )
    assert run.output == "100 100\n"
    assert ("data-dependent size", "aten::index") in run.approximations()


def test_moved_parameters_stay_the_optimizers(record):
    run = record(
        """
        import torch
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=1, momentum=0.9)
        model.cuda()
        model(torch.ones(2, 4, device="cuda")).sum().backward(); optimizer.step()
        print([p.device.type for p in optimizer.param_groups[0]["params"]])
        """
    )
    assert run.output == "['cuda', 'cuda']\n"


def test_marked_elements_bound_what_is_found(record):
    run = record(
        """
        import torch
        scores = torch.randn(1000, device="cuda")
        mask = torch.zeros_like(scores, dtype=torch.uint8)
        mask[torch.randperm(1000, device="cuda")[:128]] = 1
        other = torch.zeros_like(mask)
        other[torch.randperm(1000, device="cuda")[:384]] = 1
        print(torch.where(mask)[0].numel(), torch.where(mask | other)[0].numel())
        print(torch.where(torch.cat([mask, mask]))[0].numel())
        """
    )
    assert run.output.split() == ["128", "512", "256"]


def test_a_scaler_finds_the_gradients_of_parameters_that_moved(record):
    """As accelerate does: the network moves after the optimizer was made, and nothing clears gradients before."""
    run = record(
        """
        import torch
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias]}], lr=1)
        scaler = torch.amp.GradScaler()
        model.cuda()
        scaler.scale(model(torch.ones(2, 4, device="cuda")).sum()).backward()
        scaler.unscale_(optimizer); scaler.step(optimizer); scaler.update()
        print([p.device.type for group in optimizer.param_groups for p in group["params"]])
        """
    )
    assert run.output == "['cuda', 'cuda']\n", run.errors


def test_an_unknown_loss_is_finite(record):
    """A program that stops where its loss is not finite goes on."""
    run = record(
        """
        import torch
        loss = torch.randn(4, device="cuda").sum()
        print(bool(loss.isfinite()), bool(torch.isfinite(loss)), bool(~torch.isfinite(loss)), bool(torch.isnan(loss)))
        print(torch.isfinite(torch.tensor([1.0, float("inf")], device="cuda")).tolist())
        """
    )
    assert run.output.splitlines() == ["True True False False", "[True, False]"], run.errors
    assert ("check taken as passed", "isfinite of a tensor on the card") in run.approximations()


def test_a_distribution_takes_unknown_parameters(record):
    run = record(
        """
        import torch
        logits = torch.randn(1, 2, device="cuda")
        chosen = torch.distributions.Categorical(logits=logits)
        print(chosen.log_prob(chosen.sample()).shape, torch.distributions.Normal(logits, logits.exp()).sample().shape)
        """
    )
    assert run.output.splitlines() == ["torch.Size([1]) torch.Size([1, 2])"], run.errors
