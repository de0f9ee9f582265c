//! The memory of a step over its events, stacked by category, as SVG.

use std::fmt::Write;
use std::ops::Range;

use estimator::{Breakdown, Bytes, Category};
use maud::{Markup, PreEscaped, html};
use recording::analysis::UsagePoint;

use super::Plot;

/// The order of the stack: from memory that stays to memory that comes and goes.
const STACK: [Category; 8] = [
    Category::Parameters,
    Category::Optimizer,
    Category::Workspaces,
    Category::Buffers,
    Category::Inputs,
    Category::Gradients,
    Category::Activations,
    Category::Temporaries,
];

/// Colours of the categories, by name: Paul Tol's "bright" scheme, which people with colour blindness can
/// tell apart (SRON/EPS/TN/09-002, 2021, figure 1), with a darker grey.
pub const STYLE: &str = include_str!("chart.css");

/// The style of a page with charts: one of two sizes is shown.
pub const ON_PAGE: &str = include_str!("on_page.css");

/// The label of the axis.
pub const AXIS: &str = "operations in the order in which they happen, not time";

/// The size of a chart, in pixels.
#[derive(Clone, Copy, Debug)]
pub struct Canvas {
    pub(super) width: usize,
    pub(super) height: usize,
}

/// The size for a screen or a page of paper.
pub const WIDE: Canvas = Canvas {
    width: 960,
    height: 430,
};

/// The size for a phone.
pub const NARROW: Canvas = Canvas {
    width: 380,
    height: 420,
};

/// The average width of a letter, rounded up, in pixels.
const LETTER: f64 = 6.6;
/// The average width of a bold letter.
const BOLD: f64 = 7.7;
/// The height of a line of text.
pub(super) const LINE: f64 = 17.0;
/// The smallest width that can be told apart.
const COLUMN: f64 = 2.0;

/// The chart as a file of its own.
pub fn render(plot: &Plot) -> String {
    format!("{}\n", draw(plot, WIDE, true).into_string())
}

/// What `draw` draws, on a page that shows it as wide as its reader's screen is: with [`ON_PAGE`].
pub fn on_page(draw: impl Fn(Canvas) -> Markup) -> Markup {
    html! {
        div.chart-wide { (draw(WIDE)) }
        div.chart-narrow { (draw(NARROW)) }
    }
}

/// The chart on `canvas`; `alone` if it is a file of its own.
pub fn draw(plot: &Plot, canvas: Canvas, alone: bool) -> Markup {
    let chart = Chart::new(plot, canvas);
    let title = &plot.title;
    let (width, height) = (canvas.width, canvas.height);
    html! {
        svg.chart xmlns=[alone.then_some("http://www.w3.org/2000/svg")]
            viewBox={ "0 0 " (width) " " (height) } width=[alone.then_some(width)]
            height=[alone.then_some(height)] role="img"
            aria-label={ "Memory in use over one training step of " (title) }
        {
            @if alone {
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            (chart.bands())
            (chart.grid())
            @for category in STACK.iter().rev() { (chart.area(*category)) }
            (chart.edges())
            (chart.capacity())
            (chart.peak())
            (chart.legend())
        }
    }
}

struct Chart<'a> {
    plot: &'a Plot<'a>,
    step: Range<usize>,
    /// The samples, column by column.
    samples: Vec<UsagePoint>,
    /// Lines of text above the plot about the peak.
    peak: Vec<String>,
    /// The name and the memory of the card, if the memory is near enough to be shown.
    card: Option<(String, Bytes)>,
    /// The bytes at the top of the plot.
    most: f64,
    left: f64,
    right: f64,
    /// The middle of the canvas.
    middle: f64,
    top: f64,
    bottom: f64,
    legend: Vec<(Category, (f64, f64))>,
}

impl<'a> Chart<'a> {
    fn new(plot: &'a Plot, canvas: Canvas) -> Self {
        let (left, right) = (66.0, canvas.width as f64 - 12.0);
        let step = plot.step();
        let live = plot.peak_bytes.as_f64().max(1.0);
        let card = plot.verdicts.first().map(|verdict| {
            let gpu = &verdict.gpu;
            let left = gpu.available();
            let name = match gpu.provenance {
                Some(_) => format!("{left} of {} for the job", gpu.name),
                None => gpu.name.clone(),
            };
            (name, left)
        });
        let card = card.filter(|(_, left)| left.as_f64() <= 1.5 * live);
        let most = card
            .as_ref()
            .map_or(live, |(_, left)| left.as_f64().max(live));
        let there = |category: &Category| {
            let of_step = &plot.history.points;
            of_step.iter().any(|sample| sample.in_use[*category].0 > 0)
        };
        let shown: Vec<_> = STACK.iter().copied().filter(there).collect();
        let names = shown.iter().map(|category| category.to_string().len());
        let legend: Vec<_> = shown
            .iter()
            .copied()
            .zip(in_rows(names, left, right))
            .collect();
        let mut rows = legend.last().map_or(0.0, |(_, (_, y))| *y + LINE);
        if card.is_some() {
            rows += LINE;
        }
        let peak = in_lines(plot.peak_words.iter().map(String::as_str), right - left);
        Self {
            samples: columns(plot, &step, (right - left) / COLUMN),
            plot,
            step,
            card,
            most: most * 1.04,
            left,
            right,
            middle: canvas.width as f64 / 2.0,
            top: LINE * peak.len() as f64 + 14.0,
            bottom: canvas.height as f64 - rows - 3.0 * LINE,
            peak,
            legend,
        }
    }

    fn x(&self, position: usize) -> f64 {
        let inside = position.clamp(self.step.start, self.step.end) - self.step.start;
        let share = inside as f64 / self.step.len().max(1) as f64;
        tenth(self.left + share * (self.right - self.left))
    }

    fn y(&self, bytes: Bytes) -> f64 {
        let share = bytes.as_f64() / self.most;
        tenth(self.bottom - share * (self.bottom - self.top))
    }

    /// The phases, in the background.
    fn bands(&self) -> Markup {
        let height = self.bottom - self.top;
        html! {
            @for (index, (phase, events)) in self.phases().enumerate() {
                @let (from, to) = (self.x(events.start), self.x(events.end));
                rect.band.odd[index % 2 == 1] x=(from) y=(self.top) width=(tenth(to - from))
                    height=(height) { title { (phase) } }
            }
            @for (phase, x) in self.named() {
                text x=(tenth(x)) y=(self.bottom + LINE) text-anchor="middle" { (phase) }
            }
            text x=(tenth(self.middle)) y=(self.bottom + 2.0 * LINE) text-anchor="middle" {
                (AXIS)
            }
        }
    }

    /// The phases whose names have room below the axis, and the positions of the names; the longest phases
    /// come first.
    fn named(&self) -> Vec<(String, f64)> {
        let mut phases: Vec<_> = self.phases().collect();
        phases.sort_by_key(|(_, events)| std::cmp::Reverse(events.len()));
        let mut named: Vec<(String, f64)> = Vec::new();
        for (phase, events) in phases {
            let x = (self.x(events.start) + self.x(events.end)) / 2.0;
            let apart = |(other, at): &(String, f64)| {
                (x - at).abs() > LETTER * ((phase.len() + other.len()) as f64 / 2.0 + 1.0)
            };
            if named.iter().all(apart) {
                named.push((phase, x));
            }
        }
        named
    }

    /// The boundaries between phases, in the foreground.
    fn edges(&self) -> Markup {
        html! {
            @for (_, events) in self.phases().skip(1) {
                @let x = self.x(events.start);
                line.edge x1=(x) x2=(x) y1=(self.top) y2=(self.bottom) {}
            }
        }
    }

    fn phases(&self) -> impl Iterator<Item = (String, Range<usize>)> {
        let within =
            |events: &Range<usize>| events.start < self.step.end && self.step.start < events.end;
        let spans = self.plot.history.phases.iter();
        spans
            .filter(move |span| within(&span.events))
            .map(|span| (span.what.phase.to_string(), span.events.clone()))
    }

    fn grid(&self) -> Markup {
        // Powers of two, so that a label is a round number of bytes.
        let mut distance = 1u64;
        while self.most / distance as f64 > 7.0 {
            distance *= 2;
        }
        let ticks = (0..=7).map(|index| Bytes(index * distance));
        let shown = ticks.filter(|bytes| bytes.as_f64() <= self.most);
        html! {
            @for bytes in shown {
                @let y = self.y(bytes);
                line.grid x1=(self.left) x2=(self.right) y1=(y) y2=(y) {}
                text x=(self.left - 6.0) y=(tenth(y + 4.0)) text-anchor="end" { (bytes) }
            }
        }
    }

    /// The area from zero to the top of `category`. The areas below it in the stack are drawn over it.
    fn area(&self, category: Category) -> Markup {
        let below = STACK
            .iter()
            .position(|c| *c == category)
            .unwrap_or_default();
        let height = |sample: &UsagePoint| {
            let parts = STACK[..=below].iter();
            self.y(parts.map(|category| sample.in_use[*category]).sum())
        };
        if self.samples.iter().all(|m| m.in_use[category].0 == 0) {
            return html! {};
        }
        let mut path = format!("M{} {}", self.left, tenth(self.bottom));
        let mut at = self.bottom;
        for sample in &self.samples {
            let y = height(sample);
            if y != at {
                let _ = write!(path, "H{}V{y}", self.x(sample.position));
                at = y;
            }
        }
        let _ = write!(path, "H{}V{}Z", self.right, tenth(self.bottom));
        let at_peak = self.plot.at_peak[category];
        html! {
            path class=(category) d=(path) { title { (category) ": " (at_peak) " at the peak" } }
        }
    }

    fn capacity(&self) -> Markup {
        let Some((_, bytes)) = &self.card else {
            return html! {};
        };
        let y = self.y(*bytes);
        html! { line.capacity x1=(self.left) x2=(self.right) y1=(y) y2=(y) {} }
    }

    fn peak(&self) -> Markup {
        let Some(position) = self.plot.peak else {
            return html! {};
        };
        let (x, y) = (self.x(position), self.y(self.plot.peak_bytes));
        let longest = self.peak.iter().map(|line| line.chars().count()).max();
        let half = longest.unwrap_or_default() as f64 * BOLD / 2.0;
        // In the middle above the peak, if that is on the canvas.
        let (anchor, at) = match (x - half < 4.0, x + half > self.right) {
            (true, _) => ("start", 4.0),
            (_, true) => ("end", self.right),
            _ => ("middle", x),
        };
        let text_ends = self.top - 10.0;
        html! {
            line.peak x1=(x) x2=(x) y1=(text_ends) y2=(y) {}
            circle.peak cx=(x) cy=(y) r="3" {}
            @for (index, line) in self.peak.iter().enumerate() {
                text.strong x=(tenth(at)) y=(tenth(13.0 + LINE * index as f64))
                    text-anchor=(anchor) { (line) }
            }
        }
    }

    fn legend(&self) -> Markup {
        let top = self.bottom + 2.5 * LINE;
        html! {
            @for (category, (x, y)) in &self.legend {
                rect class=(category) x=(tenth(*x)) y=(tenth(top + y)) width="11" height="11"
                    rx="2" {}
                text x=(tenth(x + 16.0)) y=(tenth(top + y + 10.0)) { (category) }
            }
            @if let Some((name, _)) = &self.card {
                @let y = top + self.legend.last().map_or(0.0, |(_, (_, y))| y + LINE) + 6.0;
                line.capacity x1=(self.left) x2=(self.left + 28.0) y1=(tenth(y)) y2=(tenth(y)) {}
                text x=(self.left + 34.0) y=(tenth(y + 4.0)) { (name) }
            }
        }
    }
}

/// The samples to draw in `count` columns of equal width. Each is the one with the most bytes in use in its
/// column, so that every peak is visible, however short it is.
fn columns(plot: &Plot, step: &Range<usize>, count: f64) -> Vec<UsagePoint> {
    let count = count as usize;
    let samples = plot.history.downsample(step.clone(), count);
    let starts = |column: usize| step.start + step.len() * column / count;
    let mut rest = samples.as_slice();
    let mut held = Breakdown::default();
    let mut drawn = Vec::with_capacity(count);
    for column in 0..count {
        let ends = starts(column + 1);
        let (now, later) = rest.split_at(rest.partition_point(|m| m.position < ends));
        let there = now.iter().map(|sample| sample.in_use).chain([held]);
        drawn.push(UsagePoint {
            position: starts(column),
            in_use: there.max_by_key(Breakdown::total).unwrap_or(held),
        });
        held = now.last().map_or(held, |sample| sample.in_use);
        rest = later;
    }
    drawn
}

/// The positions of names of so many `letters`, each with a swatch before it, in rows between `left` and `right`.
pub(super) fn in_rows(
    letters: impl Iterator<Item = usize>,
    left: f64,
    right: f64,
) -> Vec<(f64, f64)> {
    let (mut x, mut y) = (left, 0.0);
    let mut places = Vec::new();
    for letters in letters {
        let width = 32.0 + LETTER * letters as f64;
        if x + width > right && x > left {
            (x, y) = (left, y + LINE);
        }
        places.push((x, y));
        x += width;
    }
    places
}

/// `parts` with commas between them, in lines of bold text of at most `width` if the parts allow it.
pub(super) fn in_lines<'a>(parts: impl IntoIterator<Item = &'a str>, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if (line.len() + part.len() + 2) as f64 * BOLD <= width => {
                *line += &format!(", {part}");
            }
            _ => lines.push(part.to_string()),
        }
    }
    lines
}

/// Rounds `number` to a tenth of a pixel, the smallest visible difference.
pub(super) fn tenth(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
