//! The plots of a PyTorch program: the same as of a step of burn.

use recording::analysis::{History, Span};
use recording::{Layer, LayerId};
use serde_json::json;
use torch_memory::allocator::AllocatorConfig;
use torch_memory::analysis::Analysis;
use torch_memory::replay::Replay;
use torch_memory::trace::Trace;

use super::report::{ProcessReport, TorchReport};
use crate::output::Report;
use crate::output::torch::{assumptions, figures};
use crate::plots::{self, Plot};

/// The modules of `trace`, as the layers of a plot.
pub fn layer_names(trace: &Trace) -> Vec<Layer> {
    let modules = trace.modules.iter();
    let layers = modules.map(|module| Layer {
        path: module.path.clone(),
        kind: module.class.clone(),
    });
    layers.collect()
}

/// The plot of `process`, which is one of those in `report` and made `trace`, whose modules are `names`.
pub fn plot<'a>(
    report: &'a TorchReport,
    process: &'a ProcessReport,
    trace: &Trace,
    config: &AllocatorConfig,
    names: &'a [Layer],
) -> Plot<'a> {
    let replay = Replay::of(trace, config, u64::MAX);
    let peak = &process.peak;
    let title = plots::title(&report.headline());
    let most = format!("peak {} allocated", peak.allocated_bytes);
    Plot {
        verdicts: process.verdicts(),
        figures: figures(process),
        peak_bytes: peak.allocated_bytes,
        peak_words: std::iter::once(most).chain(peak.words()).collect(),
        at_peak: process.at_peak.unwrap_or_default(),
        layers: &process.layers,
        layers_unfused: false,
        assumptions: assumptions(report, process, &title),
        title,
        method: match report.recorded_on {
            Some(_) => {
                "the step was recorded beforehand, and what it allocated was replayed in PyTorch's allocator"
            }
            None => {
                "the program was run on a card that does not exist, and what it allocated was replayed in PyTorch's allocator"
            }
        },
        layer_names: names,
        history: history(trace, &Analysis::new(trace, &replay)),
        peak: Some(replay.peak),
        asked_json: json!({ "program": report.program, "torch": report.torch }),
        peak_json: json!(peak),
    }
}

fn history(trace: &Trace, analysis: &Analysis) -> History {
    let phases = analysis.phases().iter().map(|phase| phase.span.clone());
    let modules = analysis.module_spans().into_iter().map(|span| Span {
        what: LayerId(span.what.0),
        events: span.events,
    });
    History::new(
        analysis.history(),
        phases.collect(),
        modules.collect(),
        trace.events.len(),
    )
}
