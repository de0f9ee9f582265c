"""Compress a file as `src/compressed.rs` reads it: `python compress.py FILE` writes FILE.z."""

import pathlib
import sys
import zlib

for name in sys.argv[1:]:
    text = pathlib.Path(name).read_bytes()
    packed = len(text).to_bytes(8, "little") + zlib.compress(text, 9)
    pathlib.Path(name + ".z").write_bytes(packed)
