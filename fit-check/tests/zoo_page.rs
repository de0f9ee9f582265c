//! `docs/zoo.md` says what the program says.

use fit_check::commands::page::zoo;

const STORED: &str = include_str!("../../docs/zoo.md");

const STALE: &str = "docs/zoo.md is stale: fit-check page zoo > docs/zoo.md";

/// Every network is in the table; of those that are simulated in no time, the whole line is
/// compared.
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

/// The whole page, where simulations are quick.
#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "takes seconds in a release build, a minute in others"
)]
fn the_page_is_up_to_date() {
    assert!(zoo::page().unwrap() == STORED, "{STALE}");
}
