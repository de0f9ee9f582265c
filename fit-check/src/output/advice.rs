//! The advice in an answer.

use super::Table;
use super::terminal::{TITLE, columns, styled, wrapped};
use crate::advice::Advice;

/// The changes that help.
pub(super) fn table(advice: &Advice) -> Table {
    let title = format!("What would help on {}", advice.gpu.name);
    Table::of(title, &advice.changes)
        .column("change", |change| &change.what)
        .column_as("options", "flags", |change| &change.flags)
        .column("batch", |change| change.batch)
        .column_as("needs", "required_bytes", |change| change.required_bytes)
        .column("fits", |change| change.fits)
        .build()
}

/// The end of a page: `advice`, or how to ask for it if it `is_offered`.
pub(super) fn end_of_page(advice: Option<&Advice>, is_offered: bool) -> String {
    let Some(advice) = advice else {
        return match is_offered {
            true => "\n  --advise simulates changes with which it would fit\n".into(),
            false => String::new(),
        };
    };
    let table = table(advice);
    let title = styled(TITLE, &table.title);
    let rest = match advice.complete {
        true => String::new(),
        false => {
            let rest = "not every change was simulated: the time was over";
            format!("\n{}\n", wrapped(rest, 2, 4))
        }
    };
    let changes = match table.rows.as_slice() {
        [] => format!("\n  {title}: none of the changes that were simulated\n"),
        _ => format!("\n  {title}, each change simulated:\n\n{}", columns(&table)),
    };
    changes + &rest
}
