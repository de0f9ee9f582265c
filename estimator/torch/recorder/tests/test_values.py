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


def test_a_known_mask_selects_as_many_as_it_marks(record):
    run = record(
        """
        import torch
        hidden = torch.randn(2, 50, 64, device="cuda")
        labels = torch.tensor([[-100] * 20 + [7] * 30] * 2).cuda()
        print(hidden[labels != -100].shape[0])
        """
    )
    assert run.output == "60\n", run.errors
    assert not run.of("x")


def test_a_text_ends_at_its_full_length(record):
    """What generates tokens stops where each sequence has its end or the full length: one is unknown, one is known."""
    run = record(
        """
        import torch
        tokens = torch.zeros(4, 0, dtype=torch.long, device="cuda")
        unfinished = torch.ones(4, dtype=torch.long, device="cuda")
        while tokens.shape[1] < 20:
            token = torch.randn(4, 100, device="cuda").argmax(-1)
            tokens = torch.cat([tokens, token[:, None]], dim=-1)
            done = torch.full((4,), tokens.shape[1] >= 8, device="cuda") | (token == 99)
            unfinished = unfinished & ~done
            if unfinished.max() == 0:
                break
        print(tokens.shape[1])
        """
    )
    assert run.output == "8\n", run.errors


def test_a_number_is_not_decided_by_one_of_its_bits(record):
    run = record(
        """
        import torch
        unknown = torch.randint(9, (4,), device="cuda")
        print((unknown | torch.ones_like(unknown)).tolist(), (unknown & torch.zeros_like(unknown)).tolist())
        """
    )
    assert run.output == "[0, 0, 0, 0] [0, 0, 0, 0]\n", run.errors
    assert ("value read as zero", "a scalar that came from the card") not in run.approximations()
    assert ("value read as zero", "a tensor without data") in run.approximations()


def test_tokens_that_are_drawn_go_on_to_the_full_length(record):
    """As GRPO reads its completions: all up to the first end, which a token of the middle is not."""
    run = record(
        """
        import torch
        tokens = torch.cat([torch.multinomial(torch.rand(2, 100, device="cuda"), 1) for _ in range(5)], dim=1)
        ends = torch.isin(tokens, torch.tensor([0, 99], device="cuda"))
        first = torch.full((2,), 5, device="cuda")
        first[ends.any(dim=1)] = ends.int().argmax(dim=1)[ends.any(dim=1)]
        mask = torch.arange(5, device="cuda").expand(2, -1) <= first[:, None]
        print([row[kept].tolist() for row, kept in zip(tokens.cpu(), mask.cpu())])
        print(sorted(torch.multinomial(torch.rand(3, device="cuda"), 3).tolist()))
        """
    )
    assert run.output.splitlines() == ["[[50, 50, 50, 50, 50], [50, 50, 50, 50, 50]]", "[0, 1, 2]"], run.errors
    assert {kind for kind, _ in run.approximations()} == {"value not drawn"}


def test_what_is_divided_by_an_unknown_number_is_unknown(record):
    """Precisions, means over a count, widths of a grid; and logarithms of an error."""
    run = record(
        """
        import copy, json, math, torch
        scores = torch.randn(4, device="cuda")
        loss, count = scores.sum().item(), (scores > 0).sum().item()
        total = 0.0
        for _ in range(2): total += loss
        print(1 / loss, count / count, total / (total + count), 5 // count, loss / (1 / loss), 3 - loss, loss ** -1)
        print(-10 * math.log10(loss), math.log(count), json.dumps([loss, count]), f"{loss:.2f}", type(copy.copy(loss)))
        true, false = torch.stack([scores.sum(), scores.max()]).tolist(); print(true / (true + false))
        print(torch.zeros(count).shape, (scores / loss).shape, [1, 2][count], loss < 1e-3, count == 0)
        try: 1 / torch.zeros((), device="cuda").item()
        except ZeroDivisionError: print("a known zero is one")
        """
    )
    assert run.output.splitlines() == [
        "0.0 0.0 0.0 0 0.0 3.0 0.0",
        "0.0 0.0 [0.0, 0] 0.00 <class 'float'>",
        "0.0",
        "torch.Size([0]) torch.Size([4]) 1 True True",
        "a known zero is one",
    ], run.errors


def test_unknown_tensors_are_close(record):
    """ultralytics compares a network with itself in half precision, and trains with what is alike."""
    run = record(
        """
        import torch
        x = torch.randn(4, device="cuda")
        print(torch.allclose(x, x.half().float(), atol=0.5))
        a, b = torch.ones(2, device="cuda"), torch.zeros(2, device="cuda")
        print(torch.allclose(a, b), torch.allclose(a, b, atol=2))
        """
    )
    assert run.output.splitlines() == ["True", "False True"], run.errors
    assert ("check taken as passed", "torch.allclose of tensors on the card") in run.approximations()


def test_a_large_tensor_is_finite(record):
    """A program that asserts it of a batch or an output goes on."""
    run = record(
        """
        import torch
        x = torch.randn(4096, 1024, device="cuda")
        print(bool(torch.isfinite(x).all()), bool(x.isfinite().all()), bool(torch.isnan(x).any()))
        print(x[x.isfinite()].shape)
        mask = x.isfinite(); mask.copy_(x > 0); print(bool(mask.all()))
        mask = x.isfinite(); mask &= x > 0; print(bool(mask.all()))
        mask = x.isfinite(); mask.zero_(); print(bool(mask.all()))
        """
    )
    assert run.output.splitlines() == ["True True False", "torch.Size([4194304])", *["False"] * 3], run.errors
