//! What would make a job fit.

use super::Sheet;
use super::page::{TITLE, columns, styled};
use crate::advice::Advice;

impl Advice {
    /// Its rows.
    pub(super) fn sheet(&self) -> Sheet {
        let rows = self.changes.iter().map(|change| {
            vec![
                change.what.clone(),
                change.flags.clone(),
                change.batch.to_string(),
                change.required_bytes.to_string(),
                if change.fits { "yes" } else { "no" }.into(),
                change.max_batch.to_string(),
            ]
        });
        Sheet {
            title: format!("What would help on {}", self.gpu.name),
            header: Sheet::header(["change", "type", "batch", "needs", "fits", "largest batch"]),
            rows: rows.collect(),
        }
    }

    /// As a part of a page.
    pub(super) fn page(&self) -> String {
        let sheet = self.sheet();
        let title = styled(TITLE, &sheet.title);
        match sheet.rows.as_slice() {
            [] => format!("  {title}: none of the changes that were simulated\n"),
            _ => format!("  {title}, each change simulated:\n\n{}", columns(&sheet)),
        }
    }
}
