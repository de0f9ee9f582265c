//! The whole run as Chrome trace events, for Perfetto.

use estimator::Category;
use serde_json::{Value, json};
use strum::IntoEnumIterator;

use super::{Plot, chart};

/// The counters are downsampled to at most a few values in each of this many parts of the run.
const PARTS: usize = 10_000;

const PROCESS: u32 = 1;
const PHASES: u32 = 1;
const LAYERS: u32 = 2;

/// The trace. The position of an event becomes a microsecond, since the format has no other axis.
pub fn render(plot: &Plot) -> String {
    let title = &plot.title;
    let mut events = vec![
        name(
            "process_name",
            0,
            &format!("{title} (1 µs is one operation)"),
        ),
        name("thread_name", PHASES, "phases"),
        name("thread_name", LAYERS, "layers"),
    ];
    for span in &plot.history.phases {
        let mut slice = slice(PHASES, &span.what.phase.to_string(), &span.events);
        slice["args"] = json!({ "step": span.what.step });
        events.push(slice);
    }
    for span in &plot.history.layers {
        let layer = &plot.layer_names[span.what.0 as usize];
        let mut slice = slice(LAYERS, &layer.path, &span.events);
        slice["args"] = json!({ "kind": layer.kind });
        events.push(slice);
    }
    // As in JSON, there are no workspaces where nothing is one.
    let shown =
        |category: &Category| *category != Category::Workspaces || plot.at_peak.workspaces.0 > 0;
    for sample in plot.history.downsample(0..plot.history.end, PARTS) {
        let categories = Category::iter().filter(shown);
        let bytes = categories.map(|c| (c.to_string(), json!(sample.in_use[c])));
        let args: serde_json::Map<String, Value> = bytes.collect();
        events.push(json!({
            "ph": "C", "pid": PROCESS, "name": "bytes in use", "ts": sample.position, "args": args,
        }));
    }
    if let Some(position) = plot.peak {
        events.push(json!({
            "ph": "i", "pid": PROCESS, "tid": LAYERS, "s": "p", "name": "peak", "ts": position,
            "args": plot.peak_json,
        }));
    }
    let trace = json!({
        "displayTimeUnit": "ns",
        "otherData": { "axis": chart::AXIS, "asked": plot.asked_json },
        "traceEvents": events,
    });
    format!("{trace}\n")
}

fn name(what: &str, thread: u32, name: &str) -> Value {
    json!({
        "ph": "M", "pid": PROCESS, "tid": thread, "name": what, "args": { "name": name },
    })
}

fn slice(thread: u32, name: &str, events: &std::ops::Range<usize>) -> Value {
    json!({
        "ph": "X", "pid": PROCESS, "tid": thread, "name": name, "ts": events.start,
        "dur": events.len(),
    })
}
