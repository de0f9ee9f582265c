"""Write the pickles that the tests of `src/pickle.rs` and `src/snapshot.rs` read."""

import pickle

FRAMES = [
    {
        "filename": "/x/site-packages/torch/nn/functional.py",
        "name": "conv2d",
        "line": 5,
    },
    {"filename": "/home/me/train.py", "name": "main", "line": 12},
]


def entry(action: str, addr: int, size: int) -> dict:
    return {
        "action": action,
        "addr": addr,
        "size": size,
        "stream": 0,
        "time_us": 1,
        "frames": FRAMES,
    }


SNAPSHOT = {
    "device_traces": [
        [],
        [
            entry("segment_alloc", 4096, 2 << 20),
            entry("alloc", 4096, 1000),
            entry("free_requested", 8192, 600),
            entry("free_completed", 8192, 600),
            entry("free_completed", 4096, 1000),
            entry("snapshot", 0, 0),
        ],
    ],
    "segments": [
        {
            "device": 1,
            "address": 16384,
            "total_size": 2 << 20,
            "stream": 0,
            "blocks": [
                {
                    "size": 512,
                    "requested_size": 400,
                    "state": "active_allocated",
                    "address": 16384,
                },
                {
                    "size": 1024,
                    "requested_size": 0,
                    "state": "inactive",
                    "address": 16896,
                },
            ],
        }
    ],
    "allocator_settings": {},
}
PLAIN = {"a": [1, -2, 300, 2**40, True, None, 1.5], "b": ("x", "x")}

with open("snapshot.pickle", "wb") as file:
    pickle.dump(SNAPSHOT, file)
for protocol in (0, 2, 5):
    with open(f"plain{protocol}.pickle", "wb") as file:
        pickle.dump(PLAIN, file, protocol=protocol)
