//! The largest batch over the size of a sample, a line for each card, as SVG. Both axes are logarithmic: where a step's memory
//! grows with its tokens alone, a line falls straight.

use indexmap::IndexMap;
use maud::{Markup, PreEscaped, html};

use super::chart::{self, Canvas, LINE, in_lines, in_rows, tenth};

/// Colours of the lines: Paul Tol's "bright" scheme, as in [`chart::STYLE`].
const STYLE: &str = include_str!("curve.css");
/// The colours in [`STYLE`].
const COLOURS: usize = 7;

/// A job at several sizes of its sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// What is the same at all sizes: `gpt2, fp32, adamw`.
    pub title: String,
    /// What is counted by a size: `tokens in a sequence`.
    pub unit: &'static str,
    /// The name of each card, and its largest batches: (size, batch) in the order of the sizes. Where not even one sample fits,
    /// or where nothing is known, there is no point.
    pub cards: Vec<(String, Vec<(u64, u64)>)>,
}

/// The style of a page with curves.
pub fn style() -> String {
    [chart::STYLE, STYLE].concat()
}

/// The curves of `sweeps` as a file of their own, one below the other.
pub fn render(sweeps: &[Sweep]) -> String {
    let curves: Vec<_> = sweeps
        .iter()
        .map(|sweep| Curve::new(sweep, chart::WIDE))
        .collect();
    let width = chart::WIDE.width;
    let below = |curves: &[Curve]| curves.iter().map(|curve| curve.height).sum::<f64>();
    let height = below(&curves);
    let drawn = html! {
        svg.chart xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (width) " " (height) }
            width=(width) height=(height)
        {
            style { (PreEscaped(style())) }
            @for (index, curve) in curves.iter().enumerate() {
                svg y=(below(&curves[..index])) width=(width) height=(curve.height) {
                    (curve.draw())
                }
            }
        }
    };
    format!("{}\n", drawn.into_string())
}

/// The curve of `sweep` on `canvas`, which grows by the names of the cards.
pub fn draw(sweep: &Sweep, canvas: Canvas) -> Markup {
    Curve::new(sweep, canvas).draw()
}

/// Cards with the same points, which share a line.
struct Line<'a> {
    name: String,
    points: &'a [(u64, u64)],
}

struct Curve<'a> {
    sweep: &'a Sweep,
    /// The lines of the title.
    title: Vec<String>,
    lines: Vec<Line<'a>>,
    sizes: Vec<u64>,
    /// The largest of all batches.
    most: u64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    width: usize,
    height: f64,
    /// Where the names of the lines stand, below the axis.
    names: Vec<(f64, f64)>,
}

impl<'a> Curve<'a> {
    fn new(sweep: &'a Sweep, canvas: Canvas) -> Self {
        let mut same: IndexMap<&[(u64, u64)], Vec<&str>> = IndexMap::new();
        for (card, points) in &sweep.cards {
            same.entry(points).or_default().push(card);
        }
        let lines: Vec<_> = same
            .into_iter()
            .filter(|(points, _)| !points.is_empty())
            .map(|(points, cards)| Line {
                name: first_of(&cards),
                points,
            })
            .collect();
        let (left, right) = (56.0, canvas.width as f64 - 24.0);
        let points = || lines.iter().flat_map(|line| line.points);
        let mut sizes: Vec<_> = points().map(|(size, _)| *size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let most = points().map(|(_, batch)| *batch).max().unwrap_or(1);
        let names = in_rows(lines.iter().map(|line| line.name.len()), left, right);
        let rows = names.last().map_or(0.0, |(_, y)| y + LINE);
        let title = in_lines(sweep.title.split(", "), right);
        Self {
            sweep,
            sizes,
            most,
            left,
            right,
            top: LINE * (title.len() + 2) as f64,
            title,
            bottom: canvas.height as f64 - 3.5 * LINE,
            width: canvas.width,
            height: canvas.height as f64 + rows,
            names,
            lines,
        }
    }

    fn draw(&self) -> Markup {
        let Sweep { title, unit, .. } = self.sweep;
        html! {
            svg.chart viewBox={ "0 0 " (self.width) " " (self.height) } role="img"
                aria-label={ "Largest batch over " (unit) ": " (title) }
            {
                @for (index, line) in self.title.iter().enumerate() {
                    text.strong x="4" y=(13.0 + LINE * index as f64) { (line) }
                }
                (self.axes())
                @for (index, line) in self.lines.iter().enumerate() { (self.line(index, line)) }
                (self.legend())
            }
        }
    }

    fn x(&self, size: u64) -> f64 {
        let (first, last) = (self.sizes[0], self.sizes[self.sizes.len() - 1]);
        let share = share(size, first, last);
        tenth(self.left + 24.0 + share * (self.right - self.left - 24.0))
    }

    fn y(&self, batch: u64) -> f64 {
        tenth(self.bottom - share(batch, 1, self.most) * (self.bottom - self.top))
    }

    fn axes(&self) -> Markup {
        let batches = (0..).map(|power| 1u64 << power);
        let step = if self.most >= 1 << 10 { 2 } else { 1 };
        let batches = batches
            .step_by(step)
            .take_while(|batch| *batch <= self.most);
        html! {
            text x="4" y=(self.top - LINE) { "largest batch" }
            @for batch in batches {
                @let y = self.y(batch);
                line.grid x1=(self.left) x2=(self.right) y1=(y) y2=(y) {}
                text x=(self.left - 6.0) y=(tenth(y + 4.0)) text-anchor="end" { (batch) }
            }
            @for size in &self.sizes {
                text x=(self.x(*size)) y=(tenth(self.bottom + LINE)) text-anchor="middle" { (size) }
            }
            text x=(tenth((self.left + self.right) / 2.0)) y=(tenth(self.bottom + 2.0 * LINE))
                text-anchor="middle" { (self.sweep.unit) }
        }
    }

    fn line(&self, index: usize, line: &Line) -> Markup {
        let at = |(size, batch): &(u64, u64)| format!("{},{}", self.x(*size), self.y(*batch));
        let path = line.points.iter().map(at).collect::<Vec<_>>().join(" ");
        html! {
            g class=(colour(index)) {
                polyline.curve.again[index >= COLOURS] points=(path) {}
                @for (size, batch) in line.points {
                    circle.dot cx=(self.x(*size)) cy=(self.y(*batch)) r="3.5" {
                        title { (line.name) ", " (size) " " (self.sweep.unit) ": batch " (batch) }
                    }
                }
            }
        }
    }

    fn legend(&self) -> Markup {
        let top = self.bottom + 2.5 * LINE;
        html! {
            @for (index, (line, (x, y))) in self.lines.iter().zip(&self.names).enumerate() {
                @let middle = tenth(top + y + 6.0);
                g class=(colour(index)) {
                    line.curve.again[index >= COLOURS] x1=(tenth(*x)) x2=(tenth(x + 12.0))
                        y1=(middle) y2=(middle) {}
                }
                text x=(tenth(x + 16.0)) y=(tenth(middle + 4.0)) { (line.name) }
            }
        }
    }
}

/// The first names of `cards`, and how many more there are.
fn first_of(cards: &[&str]) -> String {
    match cards {
        [first, second, rest @ ..] if rest.len() > 1 => {
            format!("{first}, {second} and {} more", rest.len())
        }
        few => few.join(", "),
    }
}

fn colour(index: usize) -> String {
    format!("line-{}", index % COLOURS)
}

/// How far `value` is from `first` to `last`, by its logarithm.
fn share(value: u64, first: u64, last: u64) -> f64 {
    let whole = (last as f64 / first as f64).log2();
    match whole > 0.0 {
        true => (value as f64 / first as f64).log2() / whole,
        false => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(cards: &[(&str, &[(u64, u64)])]) -> Sweep {
        let cards = cards.iter();
        Sweep {
            title: "gpt2, fp32".into(),
            unit: "tokens in a sequence",
            cards: cards
                .map(|(name, points)| (name.to_string(), points.to_vec()))
                .collect(),
        }
    }

    /// Halving with each doubling is a straight line on logarithmic axes.
    #[test]
    fn a_batch_that_halves_with_each_doubling_falls_straight() {
        let sweep = sweep(&[("T4", &[(128, 16), (256, 8), (512, 4)])]);
        let curve = Curve::new(&sweep, chart::WIDE);
        let [first, middle, last] =
            [(128, 16), (256, 8), (512, 4)].map(|(size, batch)| (curve.x(size), curve.y(batch)));
        let close = |a: f64, b: f64| (a - b).abs() <= 0.1;
        assert!(close(middle.0, (first.0 + last.0) / 2.0));
        assert!(close(middle.1, (first.1 + last.1) / 2.0));
    }

    #[test]
    fn cards_with_the_same_batches_share_a_line_and_those_without_have_none() {
        let points: &[(u64, u64)] = &[(128, 2), (256, 1)];
        let sweep = sweep(&[("A10", points), ("3090", points), ("2060", &[])]);
        let curve = Curve::new(&sweep, chart::WIDE);
        let names: Vec<_> = curve.lines.iter().map(|line| &line.name).collect();
        assert_eq!(names, ["A10, 3090"]);
    }

    #[test]
    fn a_sweep_in_which_nothing_fits_is_drawn_all_the_same() {
        let drawn = render(&[sweep(&[("2060", &[])])]);
        assert!(!drawn.contains("polyline") && !drawn.contains("NaN"));
    }
}
