//! Memory snapshots of PyTorch: the files of `torch.cuda.memory._dump_snapshot()`.
//!
//! They are pickles, which `pickle.rs` reads without executing anything.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use crate::allocator::{SegmentEvent, Stream};
use crate::pickle::{Item, Pickle, PickleError};
use crate::trace::{Block, BlockId, Event, NameId, Trace};

/// What a snapshot has of one device.
#[derive(Clone, Debug)]
pub struct DeviceSnapshot {
    /// The index of the device.
    pub device: u32,
    /// What the program did to its memory while the history was recorded. Blocks that were there before come first.
    pub trace: Trace,
    /// Blocks that were there before the history was recorded.
    pub earlier_blocks: usize,
    /// What PyTorch's allocator took from the device and gave back in that time.
    pub segments: Vec<SegmentEvent>,
    /// What it had at the end.
    pub reserved_bytes: u64,
}

/// Why a file is not a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// It is no pickle of a snapshot.
    #[error("it is no memory snapshot of PyTorch: {0}")]
    Pickle(#[from] PickleError),
    /// The history of allocations was not recorded.
    #[error("the snapshot has no history of allocations")]
    NoHistory,
    /// An allocation has another order of events than PyTorch writes.
    #[error("the history of the snapshot is not in order: {0}")]
    Order(String),
}

/// A segment at the end of the history.
struct Segment {
    total_size: u64,
    stream: u64,
    blocks: Vec<SegmentBlock>,
}

struct SegmentBlock {
    address: u64,
    requested_size: u64,
    is_free: bool,
}

/// An event of the history.
struct Entry<'a> {
    action: &'a str,
    addr: i64,
    size: i64,
    stream: u64,
    frames: Vec<Frame<'a>>,
}

struct Frame<'a> {
    filename: &'a str,
    name: &'a str,
    line: i64,
}

impl Segment {
    fn of(segment: Item) -> Self {
        let mut next = segment.integer("address") as u64;
        let blocks = segment.list("blocks").map(|block| {
            let size = block.integer("size");
            // Older versions write no addresses: blocks are side by side.
            let address = block
                .field("address")
                .map_or(next, |_| block.integer("address") as u64);
            next = address + size as u64;
            SegmentBlock {
                address,
                requested_size: block
                    .field("requested_size")
                    .map_or(size, |_| block.integer("requested_size"))
                    as u64,
                is_free: block.text("state") == "inactive",
            }
        });
        Self {
            blocks: blocks.collect(),
            total_size: segment.integer("total_size") as u64,
            stream: segment.integer("stream") as u64,
        }
    }
}

impl<'a> Entry<'a> {
    fn of(entry: Item<'a>) -> Self {
        let frames = entry.list("frames").map(|frame| Frame {
            filename: frame.text("filename"),
            name: frame.text("name"),
            line: frame.integer("line"),
        });
        Self {
            action: entry.text("action"),
            addr: entry.integer("addr"),
            size: entry.integer("size"),
            stream: entry.integer("stream") as u64,
            frames: frames.collect(),
        }
    }
}

/// Reads the snapshot of the device with the longest history.
///
/// # Errors
///
/// The file is no snapshot, or has no history.
pub fn read(mut file: impl Read) -> Result<DeviceSnapshot, SnapshotError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let pickle = Pickle::read(&bytes)?;
    let histories = pickle.root().list("device_traces").enumerate();
    let longest = histories.max_by_key(|(device, history)| (history.len(), Reverse(*device)));
    let (device, history) = longest.ok_or(SnapshotError::NoHistory)?;
    let history: Vec<Entry> = history.items().map(Entry::of).collect();
    if !history.iter().any(|entry| entry.action == "alloc") {
        return Err(SnapshotError::NoHistory);
    }
    let of_device = |segment: &Item| segment.integer("device") == device as i64;
    let segments = pickle.root().list("segments").filter(of_device);
    let segments: Vec<Segment> = segments.map(Segment::of).collect();
    let mut builder = Builder::default();
    builder.earlier(&segments, &history);
    let earlier_blocks = builder.trace.blocks.len();
    for entry in &history {
        builder.entry(entry)?;
    }
    let mut trace = builder.trace;
    trace.events = Arc::new(builder.events);
    trace.names = Arc::new(builder.names);
    Ok(DeviceSnapshot {
        device: device as u32,
        trace,
        earlier_blocks,
        segments: builder.segments,
        reserved_bytes: segments.iter().map(|segment| segment.total_size).sum(),
    })
}

#[derive(Default)]
struct Builder {
    trace: Trace,
    events: Vec<Event>,
    names: Vec<String>,
    known_names: HashMap<String, NameId>,
    streams: HashMap<u64, Stream>,
    /// The living blocks, by address.
    living: HashMap<i64, BlockId>,
    segments: Vec<SegmentEvent>,
}

impl Builder {
    /// Adds the blocks that were there before the history: those that it frees first, and those that it never mentions.
    fn earlier(&mut self, segments: &[Segment], history: &[Entry]) {
        let mut first: HashMap<i64, &Entry> = HashMap::new();
        for entry in history
            .iter()
            .filter(|entry| matches!(entry.action, "alloc" | "free_completed"))
        {
            first.entry(entry.addr).or_insert(entry);
        }
        let freed = first
            .values()
            .filter(|entry| entry.action == "free_completed");
        let freed = freed.map(|entry| (entry.addr, entry.size as u64, entry.stream));
        let mut earlier: Vec<(i64, u64, u64)> = freed.collect();
        for segment in segments {
            for block in segment.blocks.iter().filter(|block| !block.is_free) {
                let address = block.address as i64;
                if !first.contains_key(&address) {
                    earlier.push((address, block.requested_size, segment.stream));
                }
            }
        }
        earlier.sort_unstable();
        for (address, bytes, stream) in earlier {
            self.allocate(address, bytes, stream, None);
        }
    }

    fn allocate(&mut self, address: i64, bytes: u64, stream: u64, operator: Option<NameId>) {
        let id = BlockId(self.trace.blocks.len() as u32);
        let next = self.streams.len() as Stream;
        let stream = *self.streams.entry(stream).or_insert(next);
        self.trace.blocks.push(Block {
            operator,
            stream,
            ..Block::tensor(bytes)
        });
        self.living.insert(address, id);
        self.events.push(Event::Allocate(id));
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), SnapshotError> {
        match entry.action {
            "alloc" => {
                let operator = self.operator(&entry.frames);
                self.allocate(entry.addr, entry.size as u64, entry.stream, operator);
            }
            "free_completed" => {
                let freed = self.living.remove(&entry.addr);
                let freed = freed.ok_or_else(|| {
                    SnapshotError::Order(format!("{:#x} is freed twice", entry.addr))
                })?;
                self.events.push(Event::Free(freed));
            }
            "segment_alloc" | "segment_map" => {
                self.segments.push(SegmentEvent::Taken(entry.size as u64))
            }
            "segment_free" | "segment_unmap" => self
                .segments
                .push(SegmentEvent::GivenBack(entry.size as u64)),
            _ => {}
        }
        Ok(())
    }

    /// `conv2d (train.py:12)`: the innermost call, and the innermost line that is not PyTorch's.
    fn operator(&mut self, frames: &[Frame]) -> Option<NameId> {
        let innermost = frames.first()?;
        let own = frames.iter().find(|frame| {
            !frame.filename.contains("site-packages") && frame.filename.ends_with(".py")
        });
        let text = match own {
            Some(own) => {
                let file = own.filename.rsplit('/').next().unwrap_or_default();
                format!("{} ({file}:{})", innermost.name, own.line)
            }
            None => innermost.name.into(),
        };
        let next = NameId(self.names.len() as u32);
        let name = *self.known_names.entry(text.clone()).or_insert(next);
        if name == next {
            self.names.push(text);
        }
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `data/snapshot.pickle`, which `data/snapshot.py` wrote: a history on device 1, that begins when two blocks are there.
    #[test]
    fn a_history_becomes_a_trace() {
        let file = include_bytes!("../data/snapshot.pickle");
        let snapshot = read(&file[..]).unwrap();
        assert_eq!(
            (
                snapshot.device,
                snapshot.earlier_blocks,
                snapshot.reserved_bytes
            ),
            (1, 2, 2 << 20)
        );
        let bytes: Vec<_> = snapshot
            .trace
            .blocks
            .iter()
            .map(|block| block.bytes)
            .collect();
        assert_eq!(bytes, [600, 400, 1000]);
        assert_eq!(
            snapshot.trace.operator(BlockId(2)),
            Some("conv2d (train.py:12)")
        );
        assert_eq!(snapshot.segments, [SegmentEvent::Taken(2 << 20)]);
        let freed: Vec<_> = snapshot.trace.events[3..].to_vec();
        assert_eq!(freed, [Event::Free(BlockId(0)), Event::Free(BlockId(2))]);
    }

    #[test]
    fn what_is_no_snapshot_is_refused() {
        assert!(matches!(read(&b"hello"[..]), Err(SnapshotError::Pickle(_))));
        // `{}`
        assert!(matches!(read(&b"}."[..]), Err(SnapshotError::NoHistory)));
    }
}
