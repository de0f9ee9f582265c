"""What a file holds comes to the card."""

SCRIPT = """
import torch
torch.cuda.set_device(1)
model = torch.nn.Linear(300, 300)
optimizer = torch.optim.Adam(model.parameters())
model(torch.zeros(2, 300)).sum().backward(); optimizer.step()
row = torch.arange(10.0)
torch.save({"model": model.bias.detach(), "optimizer": optimizer.state_dict(), "row": row, "part": row[2:5]}, "file.pt")
def load(where, **more):
    file = torch.load("file.pt", map_location=where, **more)
    step = file["optimizer"]["state"][0]["step"]
    print(file["model"].device, step.device, step.item(), file["part"].tolist())
    return file
"""


def test_each_way_to_name_a_card(record):
    run = record(
        SCRIPT
        + """
for where in "cuda", torch.device("cuda"), {"cpu": "cuda"}, lambda storage, place: storage.cuda():
    load(where)
load("cuda", mmap=True); load("cuda", weights_only=False); load("cuda:0"); load("cpu"); load(None)
""",
        devices=2,
    )
    places = ["cuda:1"] * 6 + ["cuda:0", "cpu", "cpu"]
    assert run.output.splitlines() == [f"{place} {place} 1.0 [2.0, 3.0, 4.0]" for place in places], run.errors


def test_tensors_of_one_storage_share_it(record):
    """Each storage of the file is one block, and the block dies with the last of its tensors."""
    run = record(
        SCRIPT
        + """
file = load("cuda")
print(torch.cuda.memory_allocated())
file["row"].fill_(7); print(file["part"].tolist())
file["row"].normal_(); print(file["part"].tolist())
file = {"part": file["part"]}; print(torch.cuda.memory_allocated())
del file; print(torch.cuda.memory_allocated())
""",
        devices=2,
    )
    # A weight of 360,000 bytes and a bias of 1,200, each with two averages in the optimizer, two steps and a row.
    held = 2 * 360448 + 3 * 1536 + 3 * 512
    assert run.output.splitlines()[1:] == [str(held), "[7.0, 7.0, 7.0]", "[0.0, 0.0, 0.0]", "512", "0"], run.errors


def test_what_is_on_the_card_is_saved(record):
    """A program goes on from its state: the file has sizes, and zeros in the place of what is on the card."""
    run = record("""
import io, os, torch
model = torch.nn.Linear(300, 300).cuda()
optimizer = torch.optim.Adam(model.parameters())
model(torch.zeros(2, 300, device="cuda")).sum().backward(); optimizer.step()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, "file.pt")
# Three times the weight and the bias.
print(os.path.getsize("file.pt") > 3 * 361200)
for where in "cuda", "cpu":
    file = torch.load("file.pt", map_location=where)
    print(file["epoch"], *(tensor.device for tensor in file["model"].values()))
model.load_state_dict(file["model"]); optimizer.load_state_dict(file["optimizer"])
held = io.BytesIO(b"before"); held.seek(6)
torch.save(model, held); held.seek(6)
print(torch.load(held, weights_only=False).weight.device)
""")
    assert run.output.splitlines() == ["True", "3 cuda:0 cuda:0", "3 cpu cpu", "cuda:0"], run.errors


def test_what_is_written_from_an_address_is_zero(record):
    """As safetensors writes a file: a large tensor comes back from the card without data."""
    run = record(
        """
        import ctypes, torch
        weight = torch.randn(1024, 1024, device="cuda")
        half = weight.cpu()[512:]
        data = ctypes.string_at(half.data_ptr(), half.numel() * half.element_size())
        print(len(data), any(data), half.data_ptr() == half.detach().data_ptr())
        """
    )
    assert run.output == "2097152 False True\n", run.errors
