//! What PyTorch says when there is no memory.

/// A request that the device had no memory for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the allocator asked the device for: the segment, not the block.
    pub segment_bytes: u64,
    /// The memory of the device that the allocator may take.
    pub capacity_bytes: u64,
    /// How much of it the allocator had taken.
    pub reserved_bytes: u64,
    /// How much of that was given away.
    pub allocated_bytes: u64,
}

impl Refusal {
    /// The text of `torch.OutOfMemoryError`, for a device with `total_bytes` of which a process takes
    /// `overhead_bytes` beside the allocator: `malloc` in `c10/cuda/CUDACachingAllocator.cpp` (2.15).
    pub fn message(&self, device: u32, total_bytes: u64, overhead_bytes: u64) -> String {
        let in_use = self.reserved_bytes + overhead_bytes;
        format!(
            "CUDA out of memory. Tried to allocate {}. GPU {device} has a total capacity of {} of which {} is free. \
             Including non-PyTorch memory, this process has {} memory in use. Of the allocated memory {} is allocated by \
             PyTorch, and {} is reserved by PyTorch but unallocated.",
            format_size(self.segment_bytes),
            format_size(total_bytes),
            format_size(total_bytes.saturating_sub(in_use)),
            format_size(in_use),
            format_size(self.allocated_bytes),
            format_size(self.reserved_bytes - self.allocated_bytes),
        )
    }
}

/// A size as PyTorch writes it in that text (`format_size` in the same file).
pub fn format_size(bytes: u64) -> String {
    let in_units = |unit: u64| bytes as f64 / unit as f64;
    match bytes {
        0..=1024 => format!("{bytes} bytes"),
        1025..=1_048_576 => format!("{:.2} KiB", in_units(1 << 10)),
        1_048_577..=1_073_741_824 => format!("{:.2} MiB", in_units(1 << 20)),
        _ => format!("{:.2} GiB", in_units(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of an error that somebody's GPU raised (PyTorch 2.10, in public logs): 24.00 MiB, 7.60 GiB, and so on.
    #[test]
    fn the_text_is_pytorchs() {
        let refusal = Refusal {
            segment_bytes: 24 << 20,
            capacity_bytes: 0,
            reserved_bytes: 268 << 20,
            allocated_bytes: 217 << 20,
        };
        assert_eq!(
            refusal.message(0, 8 << 30, 2 << 30),
            "CUDA out of memory. Tried to allocate 24.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 5.74 GiB \
             is free. Including non-PyTorch memory, this process has 2.26 GiB memory in use. Of the allocated memory \
             217.00 MiB is allocated by PyTorch, and 51.00 MiB is reserved by PyTorch but unallocated."
        );
        assert_eq!(format_size(0), "0 bytes");
        assert_eq!(format_size(1536), "1.50 KiB");
    }
}
