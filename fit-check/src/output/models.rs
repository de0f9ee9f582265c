//! The answer of `models`.

use std::fmt::Write;

use super::job_lines::sizes;
use super::terminal::{FAINT, TITLE, columns, grouped, indented, styled};
use super::{Report, Table};
use crate::report::ModelReport;

impl Report for Vec<ModelReport> {
    fn terminal(&self) -> String {
        if let [model] = self.as_slice() {
            return model.page();
        }
        let mut page = columns(&self.tables()[0]);
        let hint = "fit-check models NAME shows recipe, sources and differences";
        let _ = writeln!(page, "\n  {}", styled(FAINT, hint));
        let small: Vec<_> = model_zoo::tiny_models().iter().map(|m| m.name).collect();
        let small = format!("made small, for `verify`: {}", small.join(", "));
        page += &indented(&small);
        page
    }

    fn tables(&self) -> Vec<Table> {
        let table = Table::of("", self)
            .column("model", |model| model.name)
            .column("family", |model| model.family)
            .column("parameters", |model| model.parameters)
            .column("sample", |model| sizes(&model.input))
            .column("batch", |model| model.batch)
            .column("optimizer", |model| model.optimizer.to_string());
        vec![table.build()]
    }
}

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
        for (name, value) in [
            ("parameters", counts.as_str()),
            ("sample", &sizes(&self.input)),
            ("batch", &batch),
            ("optimizer", &optimizer),
            ("recipe", self.recipe),
            ("paper", self.paper),
            ("reference", self.reference),
        ] {
            let _ = writeln!(page, "  {name:<11} {value}");
        }
        match self.differences {
            [] => page += "  differences none\n",
            differences => {
                page += "  differences\n";
                for difference in differences {
                    page += &indented(&format!("  - {difference}"));
                }
            }
        }
        page
    }
}
