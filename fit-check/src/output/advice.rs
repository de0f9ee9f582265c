//! The advice in an answer.

use super::terminal::{TITLE, columns, styled};
use super::{Table, column};
use crate::advice::Advice;

/// The changes that help.
pub(super) fn table(advice: &Advice) -> Table {
    let rows = advice.changes.iter().map(|change| {
        vec![
            change.what.clone().into(),
            change.flags.clone().into(),
            change.batch.into(),
            change.required_bytes.into(),
            change.fits.into(),
            change.max_batch.into(),
        ]
    });
    Table {
        title: format!("What would help on {}", advice.gpu.name),
        columns: vec![
            column("change", "change"),
            column("type", "flags"),
            column("batch", "batch"),
            column("needs", "required_bytes"),
            column("fits", "fits"),
            column("largest batch", "max_batch"),
        ],
        rows: rows.collect(),
    }
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
    match table.rows.as_slice() {
        [] => format!("\n  {title}: none of the changes that were simulated\n"),
        _ => format!("\n  {title}, each change simulated:\n\n{}", columns(&table)),
    }
}
