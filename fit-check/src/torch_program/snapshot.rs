//! `estimate snapshot.pickle`: a memory snapshot of PyTorch in place of a model.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use torch_memory::snapshot::{self, DeviceSnapshot, SnapshotError};
use torch_memory::stream::Recording;
use torch_memory::trace::Approximation;

use super::report::{ProcessReport, TorchReport};
use crate::cli::Advise;
use crate::resolve::Card;
use crate::user_error::UserError;

/// Whether `model`, as typed, is a file that holds a snapshot.
pub fn is_snapshot(model: &str) -> bool {
    let path = Path::new(model);
    let extension = path.extension().unwrap_or_default();
    ["pickle", "pkl"].iter().any(|known| extension == *known)
}

/// The answer about the snapshot at `path` on `cards`, with the allocator's configuration `conf`.
///
/// # Errors
///
/// There is no snapshot at `path`, or it has no history.
pub fn report(
    path: &str,
    cards: &[Card],
    conf: &str,
    advise: Advise,
) -> Result<TorchReport, UserError> {
    let unread = |error: &dyn std::fmt::Display| UserError::new(format!("{path}: {error}"));
    let file = File::open(path).map_err(|error| {
        unread(&error).hint("name a file that torch.cuda.memory._dump_snapshot() wrote")
    })?;
    let snapshot = snapshot::read(BufReader::new(file)).map_err(|error| {
        unread(&error).hint(match error {
            SnapshotError::NoHistory => "call torch.cuda.memory._record_memory_history() before the model goes to the GPU, and _dump_snapshot() after two steps",
            _ => "name a file that torch.cuda.memory._dump_snapshot() wrote",
        })
    })?;
    let config = conf
        .parse()
        .map_err(|error| UserError::new(format!("{error}")))?;
    let recording = Recording {
        trace: snapshot.trace.clone(),
        ..Recording::default()
    };
    let first = ProcessReport::new(&recording, cards.first(), &config, advise);
    let others = cards.iter().skip(1);
    let process = others.fold(first, |process, card| {
        process.on(&recording, card, &config, advise)
    });
    Ok(TorchReport {
        program: path.into(),
        approximations: earlier(&snapshot),
        processes: vec![process],
        ..TorchReport::new(path.into(), &[], &[], advise)?
    })
}

/// That the history begins after the program did.
fn earlier(snapshot: &DeviceSnapshot) -> Vec<Approximation> {
    let blocks = &snapshot.trace.blocks[..snapshot.earlier_blocks];
    if blocks.is_empty() {
        return Vec::new();
    }
    vec![Approximation {
        kind: "before the history".into(),
        text: "blocks that were there before the history was recorded count as allocated at its begin, one after the other".into(),
        bytes: estimator::Bytes(blocks.iter().map(|block| block.bytes).sum()),
        count: blocks.len() as u64,
    }]
}
