//! The answer as a self-contained page for a browser.

use estimator::{Bytes, Category, LayerMemory};
use maud::{Markup, PreEscaped, html};
use strum::IntoEnumIterator;

use super::{Plot, chart};
use crate::output::html::document;
use crate::output::job_lines::verdict_lines;
use crate::output::terminal::plain;

const STYLE: &str = include_str!("html.css");
const SORT: &str = include_str!("sort.js");

/// A category, and how to read its bytes from a layer.
type OfLayer = (Category, fn(&LayerMemory) -> Bytes);

/// The categories of a layer, in the order of the columns.
const OF_LAYER: [OfLayer; 4] = [
    (Category::Parameters, |layer| layer.parameter_bytes),
    (Category::Activations, |layer| layer.activation_bytes),
    (Category::Gradients, |layer| layer.gradient_bytes),
    (Category::Optimizer, |layer| layer.optimizer_bytes),
];

/// The page.
pub fn render(plot: &Plot) -> String {
    let title = &plot.title;
    let body = html! {
        h1 { (title) }
        (answer(plot))
        h2 { "Memory over the step" }
        p.faint {
            "What is in use, by what it is for, in the step with the peak. Left to right \
             are allocations, launches and releases in the order in which they happen; \
             how long each takes is not known. Where many fall into one column, the one \
             with the most in use is shown."
        }
        (chart::on_page(|canvas| chart::draw(plot, canvas, false)))
        h2 { "At the peak" }
        (at_peak(plot))
        h2 { "Layers" }
        (layers(plot.layers, plot.layers_unfused))
        h2 { "Assumptions" }
        (assumptions(plot))
        script { (PreEscaped(SORT)) }
    };
    let style = [chart::STYLE, chart::ON_PAGE, STYLE].concat();
    document(&format!("{title} - fit-check"), &style, &body)
}

fn answer(plot: &Plot) -> Markup {
    html! {
        @for verdict in plot.verdicts {
            p class=(if verdict.fits { "good" } else { "bad" }) {
                @for line in plain(&verdict_lines(verdict, None)).lines() { strong { (line) } br; }
            }
        }
        table {
            tbody {
                @for figure in &plot.figures {
                    tr {
                        td.name { (figure.name) }
                        td.amount { strong { (figure.bytes) } }
                        td.words { (figure.meaning) }
                    }
                }
            }
        }
    }
}

fn at_peak(plot: &Plot) -> Markup {
    let at_peak = &plot.at_peak;
    let total = at_peak.total().as_f64().max(1.0);
    let there = || Category::iter().filter(|category| at_peak[*category].0 > 0);
    html! {
        table {
            tbody {
                @for category in there() {
                    @let share = 100.0 * at_peak[category].as_f64() / total;
                    tr {
                        td {
                            span class={ "swatch " (category) } {} (category)
                            span.bar { (part(category, share)) }
                        }
                        td.amount { (at_peak[category]) }
                        td.amount { (format!("{share:.1} %")) }
                    }
                }
            }
        }
    }
}

/// A part of a bar that is `percent` of its length.
fn part(category: Category, percent: f64) -> Markup {
    html! { i class=(category) style={ "width:" (format!("{percent:.2}")) "%" } {} }
}

fn layers(layers: &[LayerMemory], unfused: bool) -> Markup {
    let sum = |layer: &LayerMemory| OF_LAYER.iter().map(|(_, of)| of(layer)).sum::<Bytes>();
    let most = layers.iter().map(sum).max().unwrap_or_default();
    let share = |bytes: Bytes| 100.0 * bytes.as_f64() / most.as_f64().max(1.0);
    html! {
        p.faint {
            "In the order of first use; a click on a heading sorts. Activations are those at the \
             end of the last forward pass, gradients at the end of the last backward pass: they \
             need not be there at the same time."
            @if unfused {
                " They are of the step without fusion, since a fused kernel computes several layers at once."
            }
        }
        div.scroll {
            table.layers {
                thead {
                    tr {
                        th { button type="button" { "layer" } }
                        th.words.kind { button type="button" { "kind" } }
                        @for (category, _) in OF_LAYER {
                            th { button type="button" { (category) } }
                        }
                        th { button type="button" { "all four" } }
                    }
                }
                tbody {
                    @for layer in layers {
                        tr {
                            td {
                                (layer.path)
                                span.bar {
                                    @for (category, of) in OF_LAYER { (part(category, share(of(layer)))) }
                                }
                            }
                            td.words.kind { (layer.kind) }
                            @for (_, of) in OF_LAYER { (amount(of(layer))) }
                            (amount(sum(layer)))
                        }
                    }
                }
            }
        }
    }
}

fn amount(bytes: Bytes) -> Markup {
    html! { td.amount data-value=(bytes.0) { (bytes) } }
}

fn assumptions(plot: &Plot) -> Markup {
    html! {
        dl {
            @for (name, lines) in &plot.assumptions {
                dt { (name) }
                @for line in lines { dd { (line) } }
            }
            dt { "Made by" }
            dd { "fit-check " (env!("CARGO_PKG_VERSION")) ": " (plot.method) }
        }
    }
}
