//! The answer of `gpus`.

use std::fmt::Write;

use estimator::{Gpu, Provenance};

use super::terminal::{FAINT, TITLE, columns, styled};
use super::{Cell, Report, Table};
use crate::report::GpuReport;

impl Report for Vec<GpuReport> {
    fn terminal(&self) -> String {
        if let [card] = self.as_slice() {
            return card.page();
        }
        let mut page = columns(&self.tables()[0]);
        let hint = "usable: what can be allocated, the least that is known; fit-check gpus NAME tells from where";
        let _ = writeln!(page, "\n  {}", styled(FAINT, hint));
        page
    }

    fn tables(&self) -> Vec<Table> {
        let table = Table::of("", self)
            .column("card", |card| &card.gpu.name)
            .column_as("--gpu", "alias", |card| card.gpu.aliases.first())
            .column("architecture", |card| &card.gpu.architecture)
            .column_as("sold as", "marketed_gb", |card| {
                Cell::Decimal(card.gpu.marketed_gb, "GB")
            })
            .column_as("usable", "usable_bytes", |card| card.gpu.usable_bytes)
            .column_as("known from", "known_from", |card| provenance(&card.gpu))
            .column_as("year", "launch_year", |card| {
                card.gpu.launch_year.map(|year| year.to_string())
            })
            .build();
        vec![table]
    }
}

fn provenance(gpu: &Gpu) -> &str {
    match gpu.provenance {
        Provenance::Reported => &gpu.source,
        Provenance::Derived => "derived",
    }
}

impl GpuReport {
    fn page(&self) -> String {
        let gpu = &self.gpu;
        let known = |bytes: Option<estimator::Bytes>| match bytes {
            Some(bytes) => bytes.to_string(),
            None => "not known".into(),
        };
        let mut page = format!(
            "{} ({} {})\n\n",
            styled(TITLE, &gpu.name),
            gpu.vendor,
            gpu.architecture
        );
        let usable = format!(
            "{} ({})",
            gpu.usable_bytes,
            match gpu.provenance {
                Provenance::Reported => format!("the least that was reported: {}", gpu.source),
                Provenance::Derived => format!("derived: {}", gpu.source),
            }
        );
        let process = format!(
            "{} typical, {} in verdicts: context and libraries, by the number of multiprocessors",
            self.overhead.typical_bytes, self.overhead.cautious_bytes
        );
        let multiprocessors = gpu
            .multiprocessors
            .map(|n| n.to_string())
            .unwrap_or_default();
        let capability = gpu
            .compute_capability
            .map(|cc| format!("{}.{}", cc / 10, cc % 10))
            .unwrap_or_default();
        let price = gpu
            .launch_price_usd
            .map(|usd| format!("{usd} USD at launch"));
        for (name, value) in [
            ("--gpu", gpu.aliases.join(", ")),
            ("sold as", format!("{} GB", gpu.marketed_gb)),
            ("fitted", known(gpu.physical_bytes)),
            ("usable", usable),
            ("process", process),
            ("SMs", multiprocessors),
            ("compute", capability),
            ("price", price.unwrap_or_default()),
            ("note", gpu.note.clone()),
        ] {
            if !value.is_empty() {
                let _ = writeln!(page, "  {name:<9} {value}");
            }
        }
        page
    }
}
