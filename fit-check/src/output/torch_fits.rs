//! The cards on which a training step in PyTorch fits.

use std::fmt::Write;

use super::gpu_search::{card_table, nearest_line};
use super::terminal::{BAD, columns, styled, wrapped, wrapped_lines};
use super::torch::{headline, notes, recorded, stack};
use super::{Report, Table};
use crate::torch_program::fitting::TorchFitsReport;
use crate::torch_program::job::TorchJob;
use crate::torch_program::versions::least_capability;

impl Report for TorchFitsReport {
    fn terminal(&self) -> String {
        let mut page = format!("{}\n\n", wrapped(&self.headline(), 0, 2));
        match self.cards.as_slice() {
            [] => {
                let none = styled(BAD, "fits on no card of the catalogue that PyTorch runs on");
                let _ = writeln!(page, "  {none}");
                if let Some(nearest) = &self.nearest {
                    page += &wrapped_lines(&nearest_line(nearest), 2);
                }
            }
            _ => page += &columns(&self.tables()[0]),
        }
        page.push('\n');
        let least = f64::from(least_capability(self.torch.cuda.as_deref())) / 10.0;
        page + &notes(&[
            match self.recorded_batches.as_slice() {
                batches @ [_, ..] => recorded(&self.recorded_on, batches),
                [] => format!(
                    "recorded with the kernels of the nearest of {}",
                    self.recorded_on
                ),
            },
            format!(
                "{}, which runs on cards of compute capability {least:.1} and newer",
                stack(&self.torch)
            ),
        ])
    }

    fn headline(&self) -> String {
        let facts = self.job.as_ref().map(TorchJob::recipe);
        headline(&self.program, &self.torch, &facts.unwrap_or_default())
    }

    fn tables(&self) -> Vec<Table> {
        vec![card_table(&self.cards)]
    }
}
