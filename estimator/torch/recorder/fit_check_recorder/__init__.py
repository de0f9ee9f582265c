"""Records what a PyTorch program allocates on a GPU that does not exist.

The person's own Python runs the person's own script. Tensors on the processor are real; each tensor on
`cuda` is a FakeTensor: a shape, strides and a type without data. A dispatch mode sees each operator, and a
weak reference to each new storage gives its death. So the order and the size of every tensor come from
PyTorch itself. What kernels allocate inside is added by rules with a source (`kernels`).

Nothing of NVIDIA's driver or runtime is called, replaced or imitated.

With the setting `measure` none of this happens: the program runs on its GPU, and `measure` writes PyTorch's
counters.
"""

#: The version of the lines that `stream` writes.
STREAM_VERSION = 1
