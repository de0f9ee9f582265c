//! The answer of `models`.

use std::fmt::Write;

use super::job_lines::sizes;
use super::terminal::{FAINT, TITLE, columns, grouped, styled, wrapped};
use super::{Report, Table};
use crate::report::{InPyTorch, ModelReport};

impl Report for Vec<ModelReport> {
    fn terminal(&self) -> String {
        if let [model] = self.as_slice() {
            return model.page();
        }
        let mut page = columns(&self.tables()[0]);
        let hint = "fit-check models NAME shows recipe, sources and differences";
        let _ = writeln!(page, "\n  {}", styled(FAINT, hint));
        let pytorch = "pytorch: --framework pytorch answers without Python (yes), or with your own";
        let _ = writeln!(page, "  {}", styled(FAINT, pytorch));
        let small: Vec<_> = model_zoo::tiny_models().iter().map(|m| m.name).collect();
        let small = format!("made small, for `verify`: {}", small.join(", "));
        page + &wrapped(&small, 2, 4) + "\n"
    }

    fn tables(&self) -> Vec<Table> {
        let table = Table::of("", self)
            .column("model", |model| model.name)
            .column("family", |model| model.family)
            .column("parameters", |model| model.parameters)
            .column("sample", |model| sizes(&model.input))
            .column("batch", |model| model.batch)
            .column("optimizer", |model| model.optimizer.to_string())
            .column("pytorch", |model| match model.pytorch {
                InPyTorch::Recorded => "yes",
                InPyTorch::WithPython => "with Python",
                InPyTorch::No => "no",
            });
        vec![table.build()]
    }
}

/// The column in which values begin.
const VALUES: usize = 14;

impl ModelReport {
    fn page(&self) -> String {
        let mut page = format!("{} ({})\n\n", styled(TITLE, self.name), self.family);
        let counts = format!(
            "{} trainable in {} tensors, {} in buffers",
            grouped(self.parameters),
            self.tensors,
            grouped(self.buffers)
        );
        let batch = self.batch.to_string();
        let optimizer = self.optimizer.to_string();
        let pytorch = match self.pytorch {
            InPyTorch::Recorded => {
                "--framework pytorch; with other options than this recipe your own Python builds it"
            }
            InPyTorch::WithPython => "--framework pytorch; your own Python builds it",
            InPyTorch::No => "no public package builds it",
        };
        for (name, value) in [
            ("parameters", counts.as_str()),
            ("sample", &sizes(&self.input)),
            ("batch", &batch),
            ("optimizer", &optimizer),
            ("recipe", self.recipe),
            ("paper", self.paper),
            ("reference", self.reference),
            ("PyTorch", pytorch),
        ] {
            let value = wrapped(value, VALUES, VALUES);
            let _ = writeln!(page, "  {name:<11} {}", value.trim_start());
        }
        match self.differences {
            [] => page += "  differences none\n",
            differences => {
                page += "  differences\n";
                for difference in differences {
                    page += &wrapped(&format!("- {difference}"), 4, 6);
                    page.push('\n');
                }
            }
        }
        page
    }
}
