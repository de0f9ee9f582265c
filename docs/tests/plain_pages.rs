//! The pages about burn's plain configuration are up to date with a program built in it.
#![cfg(not(any(feature = "fusion", feature = "autotune")))]

use docs::{batch_sizes, zoo};

const STORED: &str = include_str!("../zoo.md");

const STALE: &str =
    "docs/zoo.md is stale: cargo run -p docs --no-default-features -- zoo > docs/zoo.md";

/// Every network is in the table. For networks that are quick to simulate, the whole line is compared.
#[test]
fn the_page_is_up_to_date_for_small_networks() {
    const SMALL: [&str; 4] = ["resnet-20", "resnet-18", "alexnet", "dcgan"];
    for variant in model_zoo::variants() {
        let named = format!("\n| {} | ", variant.name);
        assert!(STORED.contains(&named), "{STALE} ({})", variant.name);
        if SMALL.contains(&variant.name) {
            let line = format!("\n| {} |\n", zoo::line(&variant).unwrap().join(" | "));
            assert!(STORED.contains(&line), "{STALE} ({})", variant.name);
        }
    }
}

/// Compares the whole page, in a build whose simulations are quick.
#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "takes seconds in a release build, a minute in others"
)]
fn the_page_is_up_to_date() {
    assert!(zoo::page().unwrap() == STORED, "{STALE}");
}

/// Compares the lines of one model whose step is quick to simulate.
#[test]
fn the_page_with_batch_sizes_is_up_to_date() {
    let lines = batch_sizes::lines("yolov3").expect("a table");
    assert_eq!(lines.len(), 2, "fp32 and mixed precision");
    for line in lines {
        assert!(
            include_str!("../batch_sizes.md").contains(&line),
            "docs/batch_sizes.md is stale, it lacks {line}: \
             cargo run -p docs --no-default-features -- batch-sizes > docs/batch_sizes.md"
        );
    }
}
