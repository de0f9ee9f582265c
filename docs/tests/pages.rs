//! The generated pages of `docs/` are up to date.

use docs::{accuracy, configurations, random_jobs, records};

#[test]
fn the_page_on_accuracy_is_that_of_the_records() {
    let page = accuracy::page(
        &records::all().expect("records that can be read"),
        &configurations::all().expect("rows"),
        &records::largest_batches().expect("records that can be read"),
        &random_jobs::all().expect("records that can be read"),
    );
    assert!(
        page == include_str!("../accuracy.md"),
        "docs/accuracy.md is stale: run `cargo run -p docs -- accuracy > docs/accuracy.md`"
    );
}
