//! Plots of a step: each is self-contained and agrees with the answer in JSON.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

struct Drawn {
    report: Value,
    html: String,
    svg: String,
    trace: Value,
}

fn draw(job: &[&str]) -> Drawn {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let output = Command::new(env!("CARGO_BIN_EXE_fit-check"))
        .arg("estimate")
        .args(job)
        .args(["--format", "json", "--quiet", "--html"])
        .arg(file("step.html"))
        .arg("--svg")
        .arg(file("step.svg"))
        .arg("--trace")
        .arg(file("step.json"))
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    let text = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    Drawn {
        report: serde_json::from_slice(&output.stdout).unwrap(),
        html: text("step.html"),
        svg: text("step.svg"),
        trace: serde_json::from_str(&text("step.json")).unwrap(),
    }
}

const JOBS: [&[&str]; 3] = [
    &["resnet-20", "--batch", "16"],
    &["unet", "--batch", "1", "--gpu", "4GB"],
    &[
        "gpt2",
        "--batch",
        "1",
        "--accumulate",
        "2",
        "--optimizer",
        "adam",
    ],
];

#[test]
fn pictures_need_nothing_but_themselves_and_name_the_peak() {
    for job in JOBS {
        let drawn = draw(job);
        let namespace = " xmlns=\"http://www.w3.org/2000/svg\"";
        assert_eq!(drawn.svg.matches(namespace).count(), 1);
        for page in [drawn.html.as_str(), &drawn.svg.replace(namespace, "")] {
            let loads = [
                "http:", "https:", "src=", "href", "url(", "@import", "<link", "<object",
            ];
            for load in loads {
                assert!(!page.contains(load), "{load} in a plot of {job:?}");
            }
            for peak in ["layer", "kernel", "phase"] {
                let peak = &drawn.report["peak"][peak];
                assert!(
                    peak.as_str().is_none_or(|name| page.contains(name)),
                    "{peak}"
                );
            }
        }
        for layer in drawn.report["layers"].as_array().unwrap() {
            assert!(drawn.html.contains(layer["path"].as_str().unwrap()));
        }
        well_formed(&drawn.svg);
    }
}

/// A trace as Perfetto reads it; see "Trace Event Format", Google 2016.
#[test]
fn the_trace_adds_up_and_its_slices_do_not_overlap() {
    for job in JOBS {
        let drawn = draw(job);
        let events = drawn.trace["traceEvents"].as_array().unwrap();
        let of_kind = |kind: &'static str| events.iter().filter(move |e| e["ph"] == kind);
        let at = |event: &Value| event["ts"].as_u64().unwrap();

        let total = |counter: &Value| -> u64 {
            let bytes = counter["args"].as_object().unwrap().values();
            bytes.map(|bytes| bytes.as_u64().unwrap()).sum()
        };
        let peak = &drawn.report["peak"];
        let live = peak["live_bytes"].as_u64().unwrap();
        assert_eq!(of_kind("C").map(total).max(), Some(live));
        let marked = of_kind("i").next().unwrap();
        let there = of_kind("C")
            .find(|counter| at(counter) == at(marked))
            .unwrap();
        assert_eq!(there["args"], drawn.report["at_peak"]);

        let threads: BTreeSet<_> = of_kind("X").map(|e| e["tid"].as_u64().unwrap()).collect();
        assert_eq!(threads.len(), 2, "phases and layers");
        for thread in threads {
            let mut end = 0;
            for slice in of_kind("X").filter(|event| event["tid"] == thread) {
                assert!(at(slice) >= end, "{slice}");
                end = at(slice) + slice["dur"].as_u64().unwrap();
            }
        }
        let named: BTreeSet<_> = of_kind("X").map(|e| e["name"].as_str().unwrap()).collect();
        for phase in drawn.report["phases"].as_array().unwrap() {
            assert!(named.contains(phase["phase"].as_str().unwrap()));
        }
        if let Some(layer) = peak["layer"].as_str() {
            assert!(named.contains(layer), "{layer}");
        }
    }
}

#[test]
fn the_chart_of_the_documentation_is_up_to_date() {
    let drawn = draw(&["resnet-50", "--batch", "32", "--optimizer", "adam"]);
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/resnet-50.svg");
    assert!(
        drawn.svg == std::fs::read_to_string(stored).unwrap(),
        "docs/resnet-50.svg is stale: fit-check estimate resnet-50 --batch 32 --optimizer adam \
         --svg docs/resnet-50.svg"
    );
}

/// A line has a point for each length.
#[test]
fn a_table_over_lengths_is_drawn_with_a_line_for_each_card() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("curve.svg");
    let output = Command::new(env!("CARGO_BIN_EXE_fit-check"))
        .args([
            "table",
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/own_models/tiny-llama"),
        ])
        .args(["--seq", "8,16,32", "--gpus", "24GB,gtx-1060-3gb", "--svg"])
        .arg(&file)
        .args(["--format", "html", "--quiet"])
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    let svg = std::fs::read_to_string(file).unwrap();
    well_formed(&svg);
    let page = String::from_utf8(output.stdout).unwrap();
    // Of the page, one for a wide screen and one for a narrow one.
    for (drawn, copies) in [(&svg, 1), (&page, 2)] {
        assert_eq!(drawn.matches("<polyline").count(), 2 * copies);
        assert_eq!(drawn.matches("<circle").count(), 2 * 3 * copies);
    }
}

/// Checks that `text` is well-formed XML without comments and sections.
fn well_formed(text: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text.trim();
    while let Some((before, after)) = rest.split_once('<') {
        assert!(
            !before.contains('>') || open.last() == Some(&"style"),
            "{before}"
        );
        entities(before);
        let (tag, after) = after.split_once('>').expect("a tag ends");
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
            continue;
        }
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "{name}");
        let parts: Vec<&str> = attributes.split('"').collect();
        assert_eq!(parts.len() % 2, 1, "quotes in {tag}");
        let mut names = BTreeSet::new();
        for pair in parts.chunks_exact(2) {
            let name = pair[0]
                .trim()
                .strip_suffix('=')
                .expect("a value has a name");
            assert!(!name.is_empty() && names.insert(name), "{tag}");
            entities(pair[1]);
        }
        open.push(name);
        assert!(open[0] == "svg", "one root");
    }
    assert!(open.is_empty() && rest.is_empty(), "{open:?}");
}

fn entities(text: &str) {
    for after in text.split('&').skip(1) {
        let known = ["amp;", "lt;", "gt;", "quot;"];
        assert!(
            known.iter().any(|entity| after.starts_with(entity)),
            "{after}"
        );
    }
}
