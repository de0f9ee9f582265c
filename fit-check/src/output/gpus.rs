//! The answer of `gpus`.

use std::fmt::Write;

use estimator::Provenance;

use super::terminal::{FAINT, TITLE, columns, styled};
use super::{Cell, Report, Table, column};
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
        let rows = self.iter().map(|card| {
            let gpu = &card.gpu;
            vec![
                gpu.name.clone().into(),
                gpu.aliases.first().cloned().into(),
                gpu.architecture.clone().into(),
                Cell::Decimal(gpu.marketed_gb, "GB"),
                gpu.usable_bytes.into(),
                provenance(gpu.provenance, &gpu.source).into(),
                gpu.launch_year.map(|year| year.to_string()).into(),
            ]
        });
        vec![Table {
            title: String::new(),
            columns: vec![
                column("card", "card"),
                column("type", "alias"),
                column("architecture", "architecture"),
                column("sold as", "marketed_gb"),
                column("usable", "usable_bytes"),
                column("known from", "known_from"),
                column("year", "launch_year"),
            ],
            rows: rows.collect(),
        }]
    }
}

fn provenance(provenance: Provenance, source: &str) -> String {
    match provenance {
        Provenance::Reported => source.to_string(),
        Provenance::Derived => "derived".into(),
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
            "{} typical, {} at most: context and libraries, by the number of multiprocessors",
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
            ("type", gpu.aliases.join(", ")),
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
