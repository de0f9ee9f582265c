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
