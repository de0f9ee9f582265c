//! The answer of `run`, as pages and as tables.

use std::fmt::Write;

use estimator::Bytes;
use maud::{Markup, html};

use super::html::document;
use super::terminal::{BAD, FAINT, GOOD, TITLE, grouped, indented, styled};
use super::{Report, Table};
use crate::counting_driver::{CallPosition, CardUsage, ProgramMemoryReport};

/// The note in each of these answers.
const NOTE: &str = "CUDA's own runtime on a driver that counts memory: there is no GPU and no kernel ran, so every value that the program read was zero, its losses too; a single buffer that is too large for CubeCL (above a quarter of the card) is not refused by the driver, so that is only seen if the program fails at it; memory counts as it was asked for, and a GPU's driver rounds small allocations up";

/// `after 1,234 kernels, 5.2 s after it opened CUDA`
fn when(moment: &CallPosition) -> String {
    format!(
        "after {} kernels, {:.1} s after it opened CUDA",
        grouped(moment.launches),
        moment.milliseconds as f64 / 1000.0
    )
}

/// The refused allocations, in words.
fn refusals(usage: &CardUsage) -> String {
    let mut text = match &usage.refused[..] {
        [] => "no allocation".to_string(),
        [first, rest @ ..] => format!(
            "{} allocation{}, the first of {} while it had {}, {}",
            rest.len() + 1,
            if rest.is_empty() { "" } else { "s" },
            first.bytes,
            first.used_bytes,
            when(&first.moment)
        ),
    };
    if usage.made_good > 0 {
        let _ = write!(
            text,
            "; {} more only until it had given memory back",
            usage.made_good
        );
    }
    if usage.given_up > 0 {
        let _ = write!(
            text,
            "; {} more for which it did not ask again",
            usage.given_up
        );
    }
    text
}

/// `fits GeForce RTX 3090: 3.1 GiB to spare`
fn verdict(usage: &CardUsage) -> String {
    let card = &usage.gpu.name;
    match usage.fits {
        Some(true) => format!(
            "{} {card}: {} to spare",
            styled(GOOD, "fits"),
            usage.headroom_bytes
        ),
        Some(false) if usage.refused.is_empty() => format!(
            "{} {card}: its {} processes together need more",
            styled(BAD, "does not fit"),
            usage.processes
        ),
        Some(false) => format!("{} {card}", styled(BAD, "does not fit")),
        None => format!(
            "{} whether it fits {card}: {} to spare until the program ended",
            styled(TITLE, "cannot tell"),
            usage.headroom_bytes
        ),
    }
}

impl Report for ProgramMemoryReport {
    fn terminal(&self) -> String {
        let mut page = format!(
            "{}: the program {}\n",
            styled(TITLE, &self.program),
            self.ended
        );
        for usage in &self.cards {
            let _ = write!(
                page,
                "\n  {}\n\n  peak    {:>10}  {}\n  end     {:>10}  when it ended\n  refused {:>10}  {}\n",
                verdict(usage),
                usage.peak_bytes.to_string(),
                when(&usage.peak_at),
                usage.end_bytes.to_string(),
                usage.refused.len(),
                refusals(usage),
            );
        }
        let _ = writeln!(page, "\n{}", styled(FAINT, indented(NOTE).trim_end()));
        page
    }

    fn tables(&self) -> Vec<Table> {
        let table = Table::of("", &self.cards)
            .column("card", |usage| &usage.gpu.name)
            .column("fits", |usage| usage.fits)
            .column_as("peak", "peak_bytes", |usage| usage.peak_bytes)
            .column_as("end", "end_bytes", |usage| usage.end_bytes)
            .column_as("headroom", "headroom_bytes", |usage| usage.headroom_bytes)
            .column("processes", |usage| usage.processes)
            .column("allocations", |usage| usage.allocations)
            .column("refused", |usage| usage.refused.len())
            .column_as("made good", "made_good", |usage| usage.made_good)
            .column_as("given up", "given_up", |usage| usage.given_up);
        vec![table.build()]
    }
}

/// The page for a browser.
pub(crate) fn html(report: &ProgramMemoryReport) -> String {
    let title = format!("{} on cards that do not exist", report.program);
    let body = html! {
        h1 { (title) }
        p { "The program " (report.ended) "." }
        @for usage in &report.cards {
            h2 { (usage.gpu.name) }
            p class=(match usage.fits { Some(true) => "good", Some(false) => "bad", None => "faint" }) {
                strong { (super::terminal::plain(&verdict(usage))) }
            }
            p { "Peak: " (usage.peak_bytes) ", " (when(&usage.peak_at)) ". At the end: " (usage.end_bytes)
                ". Refused: " (refusals(usage)) "." }
            (curve(usage))
        }
        p.faint { (NOTE) "." }
    };
    document(&format!("{title} - fit-check"), STYLE, &body)
}

const STYLE: &str = include_str!("run.css");

/// Width and height of the plot; below, the margins for its labels.
const PLOT: (f64, f64) = (860.0, 320.0);
const LEFT: f64 = 80.0;
const BELOW: f64 = 40.0;
/// The columns of the plot; of the points in a column, the highest is drawn.
const COLUMNS: usize = 860;

/// The memory that the program held, over its calls of the driver.
fn curve(usage: &CardUsage) -> Markup {
    let room = usage.gpu.available();
    // Where the card is far larger than the peak, the peak is the top.
    let top = match room.0 > 2 * usage.peak_bytes.0 {
        true => usage.peak_bytes,
        false => room.max(usage.peak_bytes),
    };
    // A thread counts its call before it writes the line, so a line may come after one with more calls.
    let calls = usage.curve.iter().map(|(calls, _)| *calls);
    let calls = calls.fold(1, u64::max);
    let x = |calls_until: u64| LEFT + PLOT.0 * calls_until as f64 / calls as f64;
    let y = |bytes: Bytes| PLOT.1 * (1.04 - bytes.as_f64() / top.as_f64().max(1.0)) / 1.04;
    let mut highest = vec![None; COLUMNS + 1];
    let mut last = Bytes::ZERO;
    for (until, bytes) in &usage.curve {
        let column = (*until as usize * COLUMNS) / calls as usize;
        let seen: &mut Option<Bytes> = &mut highest[column];
        *seen = Some(seen.unwrap_or(last).max(*bytes));
        last = *bytes;
    }
    let mut path = format!("M{LEFT},{:.1}", y(Bytes::ZERO));
    for (column, bytes) in highest.iter().enumerate() {
        if let Some(bytes) = bytes {
            let at = x((column as u64 * calls) / COLUMNS as u64);
            let _ = write!(path, "H{at:.1}V{:.1}", y(*bytes));
        }
    }
    let _ = write!(path, "H{:.1}V{:.1}Z", LEFT + PLOT.0, y(Bytes::ZERO));
    html! {
        svg viewBox={ "0 0 " (LEFT + PLOT.0 + 10.0) " " (PLOT.1 + BELOW) } role="img"
            aria-label="Memory that the program has, over its calls of the driver"
        {
            @for share in [0u64, 1, 2, 3, 4] {
                @let bytes = Bytes(top.0 / 4 * share);
                line.grid x1=(LEFT) x2=(LEFT + PLOT.0) y1=(y(bytes)) y2=(y(bytes)) {}
                text x=(LEFT - 6.0) y=(y(bytes) + 4.0) text-anchor="end" { (bytes) }
            }
            path.memory d=(path) {}
            @if top == room {
                line.card x1=(LEFT) x2=(LEFT + PLOT.0) y1=(y(room)) y2=(y(room)) {}
            }
            text x=(LEFT + PLOT.0 / 2.0) y=(PLOT.1 + 28.0) text-anchor="middle" {
                (grouped(calls)) " calls of the CUDA driver, in their order"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counting_driver::{Ended, Usage};
    use crate::job_info::GpuName;

    #[test]
    fn the_curve_is_as_long_as_the_most_calls_wherever_they_are() {
        let gpu = GpuName {
            name: "a card".into(),
            usable_bytes: Bytes::mib(8),
            overhead_bytes: Bytes::ZERO,
            group: None,
            provenance: None,
        };
        let usage = Usage {
            peak_bytes: Bytes::mib(2),
            curve: vec![(9, Bytes::mib(2)), (3, Bytes::mib(1))],
            ..Usage::default()
        };
        let drawn = curve(&CardUsage::new(gpu, usage, Ended::Exited(0))).into_string();
        assert!(drawn.contains("9 calls of the CUDA driver"), "{drawn}");
    }
}
