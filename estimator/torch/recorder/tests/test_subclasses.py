"""Tensors that a program gives a class of its own keep it on the card."""

SCRIPT = """
import torch

class Named(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, cls):
            # As MONAI does: the attributes of the first, instead of those that there were.
            first = next(one for one in args if isinstance(one, cls)) if isinstance(args, tuple) else result
            result.__dict__ = dict(getattr(first, "__dict__", {}))
        return result

volume = torch.arange(1000.0).as_subclass(Named); volume.organ = "liver"
"""


def test_a_class_goes_to_the_card_and_back(record):
    run = record(
        SCRIPT
        + """
moved = volume.to("cuda")
print(type(moved).__name__, isinstance(moved, Named), moved.organ, moved.device, moved.shape)
print(torch.cuda.memory_allocated())
half = moved[:500] * 2
print(isinstance(half, Named), half.organ, half[3].item(), torch.cuda.memory_allocated())
moved.add_(1); print(moved[3].item(), (moved > 5).sum().item())
plain = moved.as_subclass(torch.Tensor)
print(isinstance(plain, Named), plain.device, plain[3].item(), moved.cpu()[3].item(), type(moved.cpu()).__name__)
del moved, plain; print(torch.cuda.memory_allocated())
del half; print(torch.cuda.memory_allocated())
"""
    )
    assert run.output.splitlines() == [
        "Named True liver cuda:0 torch.Size([1000])",
        "4096",
        "True liver 6.0 6144",
        "4.0 995",
        "False cuda:0 4.0 4.0 Named",
        "2048",
        "0",
    ], run.errors
    assert not run.of("x")


def test_a_class_is_trained_with(record):
    run = record(
        SCRIPT
        + """
model = torch.nn.Linear(1000, 10).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(3):
    loss = model(volume.cuda()).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
    )
    assert run.bye["reason"] == "steps", run.errors
    gradient = next(line for line in run.of("r") if line[2] == "gradient")
    assert gradient


def test_a_class_and_the_one_it_is_made_of_meet(record):
    """Fastai: an operator of both, and a plain tensor that takes over the attributes of the one that it is made of."""
    run = record(
        """
        import torch

        class Base(torch.Tensor): pass
        class Image(Base): pass

        image = torch.arange(8.0).as_subclass(Image).cuda()
        mask = torch.ones(8).as_subclass(Base).cuda()
        print(type(image - mask).__name__, (image - mask).sum().item())
        plain = image.as_subclass(torch.Tensor)
        plain.__dict__ = image.__dict__
        print(plain.new_ones(2).sum().item(), plain.sum().item(), isinstance(plain, Base))
        """
    )
    assert run.output.splitlines() == ["Image 20.0", "2.0 28.0 False"], run.errors


def test_a_class_of_the_program_changes_its_form_in_place(record):
    """fastai's change of hue puts another storage into its image."""
    run = record(
        """
        import torch
        class Kind(torch.Tensor): pass
        def image(): return torch.zeros(4, 512, 512).as_subclass(Kind).to("cuda")
        one = image(); one.unsqueeze_(0); two = image(); two.transpose_(0, 2); three = image(); three.resize_(2, 512)
        print(tuple(one.shape), tuple((two + 1).shape), tuple(three.shape), isinstance(one, Kind), one.layout)
        one.set_(torch.ones(2, 8, device="cuda")); print(tuple(one.shape))
        del one, two, three; print(torch.cuda.memory_allocated())
        """
    )
    assert run.output.splitlines() == [
        "(1, 4, 512, 512) (512, 512, 4) (2, 512) True torch.strided",
        "(2, 8)",
        "0",
    ], run.errors
