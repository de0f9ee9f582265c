//! Memory snapshots of PyTorch: the files of `torch.cuda.memory._dump_snapshot()`.
//!
//! They are pickles. The crate that reads them executes nothing: a pickle that calls a function is refused.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use serde::Deserialize;

use crate::allocator::{SegmentEvent, Stream};
use crate::trace::{Block, BlockId, BlockKind, Event, NameId, Trace};

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
    /// It is no pickle of a snapshot.
    #[error("it is no memory snapshot of PyTorch: {0}")]
    Pickle(#[from] serde_pickle::Error),
    /// The history of allocations was not recorded.
    #[error("the snapshot has no history of allocations")]
    NoHistory,
    /// An allocation has another order of events than PyTorch writes.
    #[error("the history of the snapshot is not in order: {0}")]
    Order(String),
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    segments: Vec<Segment>,
    #[serde(default)]
    device_traces: Vec<Vec<Entry>>,
}

#[derive(Deserialize)]
struct Segment {
    #[serde(default)]
    device: u32,
    address: u64,
    total_size: u64,
    stream: u64,
    #[serde(default)]
    blocks: Vec<SegmentBlock>,
}

#[derive(Deserialize)]
struct SegmentBlock {
    size: u64,
    requested_size: Option<u64>,
    state: String,
    /// Older versions have none: blocks are side by side.
    address: Option<u64>,
}

#[derive(Deserialize)]
struct Entry {
    action: String,
    #[serde(default)]
    addr: i64,
    #[serde(default)]
    size: i64,
    #[serde(default)]
    stream: u64,
    #[serde(default)]
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
struct Frame {
    #[serde(default)]
    filename: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    line: u64,
}

/// Reads the snapshot of the device with the longest history.
///
/// # Errors
///
/// The file is no snapshot, or has no history.
pub fn read(file: impl Read) -> Result<DeviceSnapshot, SnapshotError> {
    let file: File = serde_pickle::from_reader(file, serde_pickle::DeOptions::new())?;
    let histories = file.device_traces.iter().enumerate();
    let (device, history) = histories
        .rev()
        .max_by_key(|(_, history)| history.len())
        .ok_or(SnapshotError::NoHistory)?;
    if !history.iter().any(|entry| entry.action == "alloc") {
        return Err(SnapshotError::NoHistory);
    }
    let device = device as u32;
    let segments: Vec<&Segment> = file
        .segments
        .iter()
        .filter(|segment| segment.device == device)
        .collect();
    let mut builder = Builder::default();
    builder.earlier(&segments, history);
    let earlier_blocks = builder.trace.blocks.len();
    for entry in history {
        builder.entry(entry)?;
    }
    let mut trace = builder.trace;
    trace.events = Arc::new(builder.events);
    trace.names = Arc::new(builder.names);
    Ok(DeviceSnapshot {
        device,
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
    fn earlier(&mut self, segments: &[&Segment], history: &[Entry]) {
        let mut first: HashMap<i64, &Entry> = HashMap::new();
        for entry in history
            .iter()
            .filter(|entry| matches!(entry.action.as_str(), "alloc" | "free_completed"))
        {
            first.entry(entry.addr).or_insert(entry);
        }
        let freed = first
            .values()
            .filter(|entry| entry.action == "free_completed");
        let freed = freed.map(|entry| (entry.addr, entry.size as u64, entry.stream));
        let mut earlier: Vec<(i64, u64, u64)> = freed.collect();
        for segment in segments {
            let mut next = segment.address;
            for block in &segment.blocks {
                let address = block.address.unwrap_or(next);
                next = address + block.size;
                if block.state != "inactive" && !first.contains_key(&(address as i64)) {
                    let bytes = block.requested_size.unwrap_or(block.size);
                    earlier.push((address as i64, bytes, segment.stream));
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
            bytes,
            operator,
            module: None,
            stream,
            kind: BlockKind::Tensor,
            role: None,
            parameter: None,
        });
        self.living.insert(address, id);
        self.events.push(Event::Allocate(id));
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), SnapshotError> {
        match entry.action.as_str() {
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
            None => innermost.name.clone(),
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
    use serde_json::json;

    use super::*;

    fn pickled(snapshot: serde_json::Value) -> Vec<u8> {
        serde_pickle::to_vec(&snapshot, serde_pickle::SerOptions::new()).unwrap()
    }

    fn entry(action: &str, addr: u64, size: u64) -> serde_json::Value {
        let frames = json!([
            {"filename": "/x/site-packages/torch/nn/functional.py", "name": "conv2d", "line": 5},
            {"filename": "/home/me/train.py", "name": "main", "line": 12},
        ]);
        json!({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": 1, "frames": frames})
    }

    #[test]
    fn a_history_becomes_a_trace() {
        let file = json!({
            "device_traces": [[], [
                entry("segment_alloc", 4096, 2 << 20),
                entry("alloc", 4096, 1000),
                entry("free_requested", 8192, 600),
                entry("free_completed", 8192, 600),
                entry("free_completed", 4096, 1000),
                entry("snapshot", 0, 0),
            ]],
            "segments": [{
                "device": 1, "address": 16384, "total_size": 2 << 20, "stream": 0,
                "blocks": [
                    {"size": 512, "requested_size": 400, "state": "active_allocated", "address": 16384},
                    {"size": 1024, "requested_size": 0, "state": "inactive", "address": 16896},
                ],
            }],
            "allocator_settings": {},
        });
        let snapshot = read(pickled(file).as_slice()).unwrap();
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
        // `os.system("true")` as a pickle (protocol 0).
        let call = b"cos\nsystem\n(S'true'\ntR.";
        assert!(matches!(read(&call[..]), Err(SnapshotError::Pickle(_))));
        assert!(matches!(read(&b"hello"[..]), Err(SnapshotError::Pickle(_))));
        let empty = pickled(json!({"device_traces": [[]], "segments": []}));
        assert!(matches!(
            read(empty.as_slice()),
            Err(SnapshotError::NoHistory)
        ));
    }
}
