"""`torch.backends.cudnn.benchmark`: cuDNN tries kernels for each convolution that it meets first."""

import pytest

TRAINING = """
    import torch, torchvision

    torch.backends.cudnn.benchmark = {benchmark}
    model = torchvision.models.resnet50().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        loss = model(torch.randn(4, 3, 64, 64, device="cuda")).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("benchmark", "times"), [(True, 68), (False, 0)])
def test_the_cache_is_emptied_once_for_each_convolution(record, benchmark, times):
    """As often as on an H200 (job `resnet50-b128-benchmark` in docs/data/h200), where each time kernels are tried."""
    recorded = record(TRAINING.format(benchmark=benchmark), card="h200", steps=2)
    assert len(recorded.of("e")) == times
    found = [line for line in recorded.of("x") if line[1] == "cudnn.benchmark"]
    assert [line[4] for line in found] == [times] * bool(times)
