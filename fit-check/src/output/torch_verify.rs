//! The answer of `verify` about a PyTorch program, as a page and as a table.

use std::fmt::Write;

use super::terminal::{BAD, GOOD, columns, styled, wrapped};
use super::torch::{headline, not_followed, notes, stack, steps};
use super::verify::relative;
use super::{Cell, Report, Table};
use crate::measure::Outcome;
use crate::torch_program::verify_report::{FigureComparison, MostComparison, TorchVerifyReport};

/// The note where NVML does not tell the memory of the GPU, as of a part of one (MIG).
const NO_DEVICE_FIGURE: &str = "NVIDIA's management library (NVML) does not tell the memory in use on this GPU, so it is not \
compared";

/// A row: the phase, what is compared, and both figures.
type Row = (String, &'static str, FigureComparison);

/// The error as percent, to a hundredth.
fn percent(error: f64) -> Cell {
    Cell::Decimal((error * 10_000.0).round() / 100.0, "%")
}

impl TorchVerifyReport {
    fn rows(&self) -> Vec<Row> {
        let most = |phase: &str, most: &MostComparison| {
            let figures = [
                ("most allocated", most.max_allocated),
                ("most reserved", most.max_reserved),
            ];
            figures.map(|(memory, figure)| (phase.to_string(), memory, figure))
        };
        let phases = self.phases.iter().flat_map(|phase| {
            let name = phase.phase.to_string();
            let figures = most(&name, &phase.most);
            std::iter::once((name, "allocated at its end", phase.allocated)).chain(figures)
        });
        let all_steps = self.all_steps.iter();
        let all_steps = all_steps.flat_map(|all_steps| most("all steps", all_steps));
        let device = self.device;
        let device = device.map(|device| ("all steps".into(), "in use on the GPU", device));
        phases.chain(all_steps).chain(device).collect()
    }

    fn verdict(&self) -> String {
        let worst = self.worst_errors();
        let [allocated, reserved] = worst.map(relative);
        let errors = format!("at the worst, allocated {allocated}, reserved {reserved}");
        let device = self.device.filter(|device| device.error < 0.0);
        let device = device.map(|device| format!(", the whole GPU {}", relative(device.error)));
        let device = device.unwrap_or_default();
        match (&self.ending, &self.refused, self.agrees) {
            (Outcome::Trained, None, true) if worst == [0.0; 2] => {
                styled(GOOD, "the estimate is the measurement, to the byte")
            }
            (Outcome::Trained, None, true) => {
                format!("{}: {errors}", styled(GOOD, "the estimate holds"))
            }
            (Outcome::Trained, None, false) if !self.same_phases => format!(
                "{}: the program did not make the phases of its recording on the GPU",
                styled(BAD, "the estimate does not hold")
            ),
            (Outcome::Trained, None, false) => {
                let verdict = styled(BAD, "the estimate does not hold");
                format!("{verdict}: {errors}{device}")
            }
            (Outcome::Trained, Some(refused), _) => format!(
                "{}: the program trained, and the GPU was estimated to refuse {refused}",
                styled(BAD, "the estimate does not hold")
            ),
            (ending, Some(refused), _) => format!(
                "{}: the program {ending}; the GPU was estimated to refuse {refused}",
                styled(GOOD, "the estimate holds")
            ),
            (ending, None, _) => format!(
                "{}: the program {ending}; it was estimated to fit",
                styled(BAD, "the estimate does not hold")
            ),
        }
    }
}

impl Report for TorchVerifyReport {
    fn terminal(&self) -> String {
        let mut page = format!("{}\n\n", wrapped(&self.headline(), 0, 2));
        let _ = writeln!(page, "{}\n", wrapped(&self.verdict(), 2, 4));
        for table in self.tables().iter().filter(|table| !table.rows.is_empty()) {
            let _ = writeln!(page, "  {}\n{}", table.title, columns(table));
        }
        page += &not_followed(&self.approximations);
        let unknown = match (&self.ending, &self.device) {
            (Outcome::Trained, None) => NO_DEVICE_FIGURE,
            _ => "",
        };
        page + &notes(&[self.gpu.clone(), stack(&self.torch), unknown.into()])
    }

    fn headline(&self) -> String {
        let facts = [Some("trained for real".into()), steps(self.steps)];
        let facts: Vec<_> = facts.into_iter().flatten().collect();
        headline(&self.program, &self.torch, &facts)
    }

    fn tables(&self) -> Vec<Table> {
        let rows = self.rows();
        let table = Table::of("In the last step, and the most of all steps", &rows)
            .column("phase", |(phase, ..)| phase)
            .column("memory", |(_, memory, _)| *memory)
            .column_as("estimated", "estimated_bytes", |(.., of)| {
                of.estimated_bytes
            })
            .column_as("measured", "measured_bytes", |(.., of)| of.measured_bytes)
            .column_as("difference", "difference_percent", |(.., of)| {
                percent(of.error)
            });
        vec![table.build()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::terminal::plain;
    use crate::torch_program::verify_report::tests::report;

    #[test]
    fn a_page_has_each_figure_twice() {
        let page = plain(&report(100, [4, 22, 38, 38], Outcome::Trained).terminal());
        let expected = "\
python train.py in PyTorch 2.15.0: trained for real, 1 optimizer step

  the estimate is the measurement, to the byte

  In the last step, and the most of all steps
  phase      memory                estimated  measured  difference
  forward    allocated at its end   4.00 MiB  4.00 MiB         0 %
  forward    most allocated         4.00 MiB  4.00 MiB         0 %
  forward    most reserved          20.0 MiB  20.0 MiB         0 %
  backward   allocated at its end   4.00 MiB  4.00 MiB         0 %
  backward   most allocated         22.0 MiB  22.0 MiB         0 %
  backward   most reserved          38.0 MiB  38.0 MiB         0 %
  optimizer  allocated at its end   4.00 MiB  4.00 MiB         0 %
  optimizer  most allocated         4.00 MiB  4.00 MiB         0 %
  optimizer  most reserved          38.0 MiB  38.0 MiB         0 %
  all steps  most allocated         22.0 MiB  22.0 MiB         0 %
  all steps  most reserved          38.0 MiB  38.0 MiB         0 %
  all steps  in use on the GPU      48.0 MiB  40.0 MiB        20 %

  NVIDIA Something
  PyTorch 2.15.0
";
        assert_eq!(page, expected);
    }

    #[test]
    fn a_verdict_says_what_is_off() {
        let verdict = |free, counters, ending| plain(&report(free, counters, ending).verdict());
        let high = verdict(100, [4, 11, 38, 38], Outcome::Trained);
        let told =
            "the estimate does not hold: at the worst, allocated +100.00 %, reserved the same";
        assert_eq!(high, told);
        let full = Outcome::OutOfMemory("CUDA out of memory.".into());
        let told = "the estimate holds: the program ran out of memory: CUDA out of memory.; the GPU was estimated to refuse an allocation of 18.0 MiB in the backward phase";
        let refused = verdict(40, [4, 22, 38, 38], full.clone());
        assert!(refused.starts_with(told), "{refused}");
        let fits = verdict(100, [4, 22, 38, 38], full);
        assert!(fits.ends_with("it was estimated to fit"), "{fits}");
    }
}
