//! An estimate and a measurement of the same step, side by side.
//!
//! The file is long because the estimated and the measured side become the same `Figures` here.

use estimator::{Analysis, Breakdown, Bytes, Category, Phase, Simulated};
use recording::{BufferId, Pools, Role};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::{Mark, Measurement, Readings, by_category};

/// What differs by no more counts as equal: the metadata of some launches. On a device burn now and then gives a result a
/// buffer of its own where a run that is simulated overwrites an operand, and CubeCL keeps the metadata of that launch. In 336
/// measurements that made 288 bytes at most (`docs/data/records.jsonl`).
pub const METADATA: Bytes = Bytes(1024);

/// The memory of a job, estimated or measured.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Figures {
    /// The most bytes in use at the end of a phase.
    pub live_bytes: Bytes,
    /// The most bytes in use at any time; in a measurement, the most that was sampled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peak_live_bytes: Option<Bytes>,
    /// The most bytes reserved by the pools at the end of a phase.
    pub reserved_bytes: Bytes,
    /// The most bytes reserved by the pools at any time, also within a phase; in a measurement only if the
    /// driver counts them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peak_reserved_bytes: Option<Bytes>,
    /// The most bytes in use on the whole device, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device_bytes: Option<Bytes>,
    /// The figures at the end of each phase.
    pub phases: Vec<PhaseFigures>,
}

impl Figures {
    /// How far this estimate is from `measured`, in bytes: what is in use and reserved at the end of every phase, and the most
    /// reserved, where they do not [count as equal](count_as_equal).
    pub fn distance(&self, measured: &Self) -> Bytes {
        let most = [(self.peak_reserved_bytes, measured.peak_reserved_bytes)];
        let within = self
            .zip_phases(measured)
            .map(|(e, m)| (e.peak_reserved_bytes, m.peak_reserved_bytes));
        let counted = within.chain(most).filter_map(|(e, m)| Some((e?, m?)));
        let ends = self.zip_phases(measured).flat_map(|(e, m)| {
            [
                (e.live_bytes, m.live_bytes),
                (e.reserved_bytes, m.reserved_bytes),
            ]
        });
        let differ = ends.chain(counted).filter(|(e, m)| !count_as_equal(*e, *m));
        differ.map(|(e, m)| Bytes(e.0.abs_diff(m.0))).sum()
    }

    /// Pairs the phases of this estimate with those of `measured`, as far as both go.
    pub fn zip_phases<'a>(
        &'a self,
        measured: &'a Self,
    ) -> impl Iterator<Item = (&'a PhaseFigures, &'a PhaseFigures)> {
        self.phases.iter().zip(&measured.phases)
    }
}

/// The figures at the end of a phase.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct PhaseFigures {
    /// The phase.
    pub phase: Phase,
    /// Optimizer steps completed before it.
    pub step: usize,
    /// Allocations in use.
    pub allocations: u64,
    /// Bytes in use.
    pub live_bytes: Bytes,
    /// The most bytes in use within the phase; in a measurement, the most that was sampled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peak_live_bytes: Option<Bytes>,
    /// How often the pools were sampled within the phase.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub readings: Option<u64>,
    /// Bytes reserved by the pools.
    pub reserved_bytes: Bytes,
    /// The most bytes reserved by the pools at once within the phase; in a measurement only if the driver
    /// counts them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peak_reserved_bytes: Option<Bytes>,
    /// Bytes in use by category. The program names the category of a buffer; where it does not, the phase
    /// decides.
    pub categories: Breakdown,
}

/// The end of a phase, estimated or measured.
struct PhaseEnd {
    phase: Phase,
    step: usize,
    pools: Pools,
    roles: Breakdown,
    peak: Option<Bytes>,
    readings: Option<u64>,
    peak_reserved: Option<Bytes>,
}

impl Figures {
    /// The figures of `simulated`; `overhead` is the memory that a process takes besides the pools.
    pub fn estimated(simulated: &Simulated, overhead: Option<Bytes>) -> Self {
        let recording = &simulated.recording;
        let phases = Analysis::of(recording).timeline.phases(recording);
        let marks = recording
            .marks
            .iter()
            .zip(phases)
            .map(|(mark, phase)| PhaseEnd {
                phase: mark.phase,
                step: mark.step,
                pools: mark.pools,
                roles: roles(simulated, &mark.roles),
                peak: Some(phase.peak_live_bytes),
                readings: None,
                peak_reserved: Some(mark.peak_reserved),
            });
        let device = overhead.map(|overhead| simulated.reserved + overhead);
        Self {
            peak_reserved_bytes: Some(simulated.reserved),
            ..Self::new(marks, device)
        }
    }

    /// The figures of `run`; `sampled` are the marks of a run whose pools were sampled all the time.
    pub fn measured(run: &Measurement, sampled: &[Mark]) -> Self {
        let marks = &run.marks;
        let sampled = sampled.iter().map(|mark| mark.sampled);
        let sampled = sampled.chain(std::iter::repeat(None));
        let peaks = run.phase_peaks.iter().copied().map(Some);
        let peaks = peaks.chain(std::iter::repeat(None));
        let seen = marks.iter().zip(sampled).zip(peaks);
        let seen = seen.map(|((mark, sampled), peak_reserved)| PhaseEnd {
            phase: mark.phase,
            step: mark.step,
            pools: mark.pools,
            roles: mark.said,
            peak: sampled.map(|sampled| sampled.most),
            readings: sampled.map(|sampled: Readings| sampled.readings),
            peak_reserved,
        });
        Self {
            peak_reserved_bytes: run.peak_reserved,
            ..Self::new(seen, marks.iter().filter_map(|mark| mark.device).max())
        }
    }

    fn new(marks: impl Iterator<Item = PhaseEnd>, device_bytes: Option<Bytes>) -> Self {
        // Unnamed buffers that are in use at the end of a step are optimizer state.
        let mut optimizer = Bytes::ZERO;
        let phases: Vec<_> = marks
            .map(|mark| {
                let unnamed = mark.pools.in_use.saturating_sub(mark.roles.total());
                if matches!(mark.phase, Phase::Init | Phase::Optimizer) {
                    optimizer = unnamed;
                }
                let rest = unnamed.saturating_sub(optimizer);
                let (activations, temporaries) = match mark.phase {
                    Phase::Forward => (rest, Bytes::ZERO),
                    _ => (Bytes::ZERO, rest),
                };
                PhaseFigures {
                    phase: mark.phase,
                    step: mark.step,
                    allocations: mark.pools.allocations,
                    live_bytes: mark.pools.in_use,
                    peak_live_bytes: mark.peak,
                    readings: mark.readings,
                    reserved_bytes: mark.pools.reserved,
                    peak_reserved_bytes: mark.peak_reserved,
                    categories: Breakdown {
                        optimizer: unnamed.saturating_sub(rest),
                        activations,
                        temporaries,
                        ..mark.roles
                    },
                }
            })
            .collect();
        let most = |figure: fn(&PhaseFigures) -> Bytes| phases.iter().map(figure).max();
        Self {
            live_bytes: most(|phase| phase.live_bytes).unwrap_or_default(),
            peak_live_bytes: phases
                .iter()
                .filter_map(|phase| phase.peak_live_bytes)
                .max(),
            reserved_bytes: most(|phase| phase.reserved_bytes).unwrap_or_default(),
            peak_reserved_bytes: None,
            device_bytes,
            phases,
        }
    }
}

/// Bytes of the buffers that `named` lists.
fn roles(simulated: &Simulated, named: &[(BufferId, Role)]) -> Breakdown {
    by_category(named.iter().map(|(buffer, role)| {
        let bytes = simulated.recording.buffer(*buffer).bytes;
        (*buffer, Category::from(*role), bytes)
    }))
}

/// The errors of an estimate relative to the measurement; negative where the estimate is too low, zero where it is at most 1 KiB
/// off.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Errors {
    /// Error of the most bytes in use at the end of a phase.
    pub live: f64,
    /// Error of the most bytes reserved at the end of a phase.
    pub reserved: f64,
    /// Error of the most bytes reserved at any time, if the driver counts them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peak_reserved: Option<f64>,
    /// Error of the memory in use on the whole device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device: Option<f64>,
    /// Error of the bytes in use at the end of the worst phase: the lowest error if any is negative, otherwise the
    /// highest.
    pub worst_phase: f64,
    /// Error of the most bytes in use within a phase, against the most that was sampled, in the phase in
    /// which the estimate is lowest. It does not count against the estimate: sampling makes CubeCL execute
    /// the calls in its channel at once, before the program drops what it no longer needs, so more bytes can
    /// be in use than otherwise.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub within_phases: Option<f64>,
}

impl Errors {
    /// The errors of `estimated` against `measured`.
    pub fn of(estimated: &Figures, measured: &Figures) -> Self {
        let phases = || estimated.zip_phases(measured);
        let by_phase = phases().map(|(estimated, measured)| {
            let live = measured.live_bytes;
            error(estimated.live_bytes, live)
        });
        let within = phases().filter_map(|(estimated, measured)| {
            Some(relative(
                estimated.peak_live_bytes?,
                measured.peak_live_bytes?,
            ))
        });
        Self {
            live: error(estimated.live_bytes, measured.live_bytes),
            reserved: error(estimated.reserved_bytes, measured.reserved_bytes),
            peak_reserved: measured
                .peak_reserved_bytes
                .and_then(|peak| Some(error(estimated.peak_reserved_bytes?, peak))),
            device: match (estimated.device_bytes, measured.device_bytes) {
                (Some(estimated), Some(measured)) => Some(relative(estimated, measured)),
                _ => None,
            },
            worst_phase: by_phase.reduce(worse).unwrap_or(0.0),
            within_phases: within.min_by(f64::total_cmp),
        }
    }

    /// Whether no figure of the estimate, except those within phases, is below the measurement or above it by
    /// more than the fraction `tolerance`. The memory of the whole device is only not below: what a process takes besides
    /// the pools is an upper bound ([`Overhead::cautious_bytes`](estimator::Overhead)).
    pub fn within(&self, tolerance: f64) -> bool {
        let near = |error| is_near(error, tolerance);
        near(self.live)
            && near(self.reserved)
            && near(self.worst_phase)
            && self.peak_reserved.is_none_or(near)
            && self.device.is_none_or(|error| error >= 0.0)
    }
}

/// Whether an estimate with this error is not below the measurement, nor above it by more than the fraction `tolerance`.
pub(crate) fn is_near(error: f64, tolerance: f64) -> bool {
    (0.0..=tolerance).contains(&error)
}

/// Whether both count as equal: they differ by [`METADATA`] at most.
pub fn count_as_equal(estimated: Bytes, measured: Bytes) -> bool {
    estimated.0.abs_diff(measured.0) <= METADATA.0
}

/// The error of an estimate relative to the measurement; zero where both [count as equal](count_as_equal).
fn error(estimated: Bytes, measured: Bytes) -> f64 {
    match count_as_equal(estimated, measured) {
        true => 0.0,
        false => relative(estimated, measured),
    }
}

/// The worse of two errors. An estimate below the measurement is worse than any above it.
pub(crate) fn worse(a: f64, b: f64) -> f64 {
    let lowest = a.min(b);
    match lowest < 0.0 {
        true => lowest,
        false => a.max(b),
    }
}

/// The error of an estimate relative to the measurement; negative if it is too low.
pub(crate) fn relative(estimated: Bytes, measured: Bytes) -> f64 {
    match measured {
        Bytes::ZERO if estimated == Bytes::ZERO => 0.0,
        Bytes::ZERO => f64::INFINITY,
        _ => estimated.signed_difference(measured) as f64 / measured.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of one phase with so many MiB in use and reserved.
    fn figures(live: u64, reserved: u64) -> Figures {
        let [live, reserved] = [live, reserved].map(Bytes::mib);
        Figures {
            live_bytes: live,
            peak_live_bytes: None,
            reserved_bytes: reserved,
            peak_reserved_bytes: Some(reserved),
            device_bytes: None,
            phases: vec![PhaseFigures {
                phase: Phase::Forward,
                step: 0,
                allocations: 1,
                live_bytes: live,
                peak_live_bytes: None,
                readings: None,
                reserved_bytes: reserved,
                peak_reserved_bytes: None,
                categories: Breakdown::default(),
            }],
        }
    }

    #[test]
    fn an_estimate_may_be_above_by_the_tolerance_and_never_below() {
        let measured = figures(100, 200);
        let within = |live, reserved| {
            let errors = Errors::of(&figures(live, reserved), &measured);
            errors.within(0.02)
        };
        assert!(within(100, 200));
        assert!(within(102, 204));
        assert!(!within(103, 200), "3 % too much in use");
        assert!(!within(99, 200), "too little in use");
        assert!(!within(100, 199), "too little reserved");
    }

    /// The most in use is in the first phase, where the estimate is high; it is low in one of the others.
    #[test]
    fn an_estimate_below_the_measurement_in_any_phase_does_not_hold() {
        let errors = |others: [u64; 2]| {
            let mut estimated = figures(1015, 2000);
            let mut measured = figures(1000, 2000);
            for live in others {
                estimated.phases.extend(figures(live, 2000).phases);
                measured.phases.extend(figures(900, 2000).phases);
            }
            Errors::of(&estimated, &measured)
        };
        let high = errors([909, 900]);
        assert!(high.within(0.02));
        assert_eq!(high.worst_phase, 0.015);
        for others in [[891, 900], [909, 891]] {
            let low = errors(others);
            assert!(!low.within(0.02), "{others:?}");
            assert_eq!(low.worst_phase, -0.01);
        }
    }

    #[test]
    fn the_metadata_of_launches_is_no_difference() {
        let estimated = figures(5, 50);
        let mut measured = figures(5, 50);
        measured.live_bytes += METADATA;
        measured.phases[0].live_bytes += METADATA;
        let errors = Errors::of(&estimated, &measured);
        assert_eq!((errors.live, errors.worst_phase), (0.0, 0.0));
        assert_eq!(estimated.distance(&measured), Bytes::ZERO);
        measured.live_bytes += Bytes(1);
        measured.phases[0].live_bytes += Bytes(1);
        let errors = Errors::of(&estimated, &measured);
        assert!(errors.live < 0.0 && errors.worst_phase < 0.0);
        assert_eq!(estimated.distance(&measured), Bytes(1025));
        // Pages count at the end of the phase, and as the most at any time.
        assert_eq!(estimated.distance(&figures(5, 52)), Bytes::mib(4));
    }
}
