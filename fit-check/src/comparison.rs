//! An estimate and a measurement of the same step, side by side.
//!
//! The file is long because the estimated and the measured side become the same `Figures` here.

use estimator::record::{BufferId, Pools, Role};
use estimator::{
    Analysis, Breakdown, Bytes, Category, DeviceSpec, InPlace, LaunchMetadata, Phase, Simulated,
    less_and_more,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::{Mark, Measurement, Readings, by_category};

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
    /// In an estimate, the range of the most bytes reserved at any time over different queue lags
    /// ([`estimator::QueueLag`]); none if it was not needed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peak_reserved_range: Option<Range<Bytes>>,
    /// The most bytes in use on the whole device, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device_bytes: Option<Bytes>,
    /// The figures at the end of each phase.
    pub phases: Vec<PhaseFigures>,
}

/// A range of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "RangeOf{T}")]
pub struct Range<T> {
    /// The least.
    pub least: T,
    /// The most.
    pub most: T,
}

impl<T: Copy + Ord> Range<T> {
    fn of(value: T) -> Self {
        Self {
            least: value,
            most: value,
        }
    }

    fn with(self, value: T) -> Self {
        Self {
            least: self.least.min(value),
            most: self.most.max(value),
        }
    }

    /// The value in this range that is nearest to `measured`.
    fn nearest(self, measured: T) -> T {
        measured.clamp(self.least, self.most)
    }
}

impl PhaseFigures {
    /// The range of the bytes that can be in use.
    fn live_range(&self) -> Range<Bytes> {
        self.live_range.unwrap_or(Range::of(self.live_bytes))
    }

    /// The range of the bytes that the pools can reserve.
    fn reserved_range(&self) -> Range<Bytes> {
        self.reserved_range
            .unwrap_or(Range::of(self.reserved_bytes))
    }

    /// Widens the ranges of what is in use by these allocations and bytes.
    fn widen_in_use(&mut self, allocations: u64, live: Bytes) {
        widen(self.allocations, &mut self.allocations_range, allocations);
        widen(self.live_bytes, &mut self.live_range, live);
    }

    /// The allocations in this estimate; of a range, the value nearest to `measured`.
    pub fn allocations_near(&self, measured: u64) -> u64 {
        let range = self.allocations_range;
        range
            .unwrap_or(Range::of(self.allocations))
            .nearest(measured)
    }

    /// The bytes in use in this estimate; of a range, the value nearest to `measured`.
    pub fn live_near(&self, measured: Bytes) -> Bytes {
        self.live_range().nearest(measured)
    }

    /// The reserved bytes in this estimate; of a range, the value nearest to `measured`.
    pub fn reserved_near(&self, measured: Bytes) -> Bytes {
        self.reserved_range().nearest(measured)
    }

    /// The most bytes reserved within the phase in this estimate; of a range, the value nearest to `measured`.
    pub fn peak_reserved_near(&self, measured: Bytes) -> Option<Bytes> {
        nearest(self.peak_reserved_bytes, self.peak_reserved_range, measured)
    }
}

/// The value nearest to `measured` in `range`, or `bytes` where there is no range.
fn nearest(bytes: Option<Bytes>, range: Option<Range<Bytes>>, measured: Bytes) -> Option<Bytes> {
    match range {
        Some(range) => Some(range.nearest(measured)),
        None => bytes,
    }
}

/// Widens `range`, which begins as `value`, by `other`.
fn widen<T: Copy + Ord>(value: T, range: &mut Option<Range<T>>, other: T) {
    let known = range.unwrap_or(Range::of(value));
    let wider = known.with(other);
    if wider != known {
        *range = Some(wider);
    }
}

/// The same for a figure that either side may lack.
fn widen_known(value: Option<Bytes>, range: &mut Option<Range<Bytes>>, other: Option<Bytes>) {
    if let (Some(value), Some(other)) = (value, other) {
        widen(value, range, other);
    }
}

impl Figures {
    /// Widens the ranges of this estimate by `other`, an estimate of the same step at other moments: with another
    /// queue lag, or where burn does not overwrite some operands. Bytes in use at the end of a phase can depend on
    /// the lag if the card refused an allocation, because CubeCL then drops the metadata that it has kept of launches.
    pub fn widen(&mut self, other: &Self) {
        for (phase, other) in self.phases.iter_mut().zip(&other.phases) {
            phase.widen_in_use(other.allocations, other.live_bytes);
            widen(
                phase.reserved_bytes,
                &mut phase.reserved_range,
                other.reserved_bytes,
            );
            widen_known(
                phase.peak_reserved_bytes,
                &mut phase.peak_reserved_range,
                other.peak_reserved_bytes,
            );
        }
        widen_known(
            self.peak_reserved_bytes,
            &mut self.peak_reserved_range,
            other.peak_reserved_bytes,
        );
    }

    /// Widens the ranges of this estimate, which is of the run `usual` on `device`, by runs in which burn does not overwrite
    /// some operands ([`InPlace`]), until it contains `measured`. A real step makes some of the launches of each. Of a run
    /// that completes only where the card has room for it, the metadata of its launches counts and nothing else. A run
    /// does not count if only `usual` is refused an allocation, or if it fails: burn's tuner can find other kernels to tune
    /// in run after run.
    pub fn widen_in_place<E>(
        &mut self,
        usual: &Simulated,
        measured: &Self,
        device: &DeviceSpec,
        mut simulate: impl FnMut(DeviceSpec) -> Result<Simulated, E>,
    ) {
        let completes = usual.outcome().is_ok();
        let usual = &usual.recording;
        let usual_metadata = LaunchMetadata::of(usual);
        let mut others = LaunchMetadata::default();
        for in_place in InPlace::SAMPLES {
            let device = device.clone().with_in_place(in_place);
            let Ok(run) = simulate(device.clone()) else {
                continue;
            };
            let (other, ends_alike) = match (completes, run.outcome().is_ok()) {
                (true, true) | (false, false) => (run, true),
                (true, false) => match simulate(device.without_limit()) {
                    Ok(unlimited) if unlimited.outcome().is_ok() => (unlimited, false),
                    _ => continue,
                },
                (false, true) => continue,
            };
            others.add(LaunchMetadata::of(&other.recording));
            let tensors = match ends_alike {
                true => {
                    self.widen(&Self::estimated(&other, None));
                    less_and_more(usual, &other.recording)
                }
                false => vec![(Bytes::ZERO, Bytes::ZERO); self.phases.len()],
            };
            let possible = tensors.into_iter().zip(others.beyond(&usual_metadata));
            for (phase, ((less, more), (count, bytes))) in self.phases.iter_mut().zip(possible) {
                phase.widen_in_use(phase.allocations, phase.live_bytes.saturating_sub(less));
                phase.widen_in_use(phase.allocations + count, phase.live_bytes + more + bytes);
            }
            if self.covers(measured) {
                break;
            }
        }
    }

    /// Whether this estimate contains what `measured` had in use and reserved at the end of every phase, and the
    /// most that it reserved.
    pub fn covers(&self, measured: &Self) -> bool {
        let in_use = self.zip_phases(measured).all(|(e, m)| {
            e.allocations_near(m.allocations) == m.allocations
                && e.live_near(m.live_bytes) == m.live_bytes
        });
        in_use && self.covers_reserved(measured)
    }

    /// Whether this estimate contains what `measured` reserved at the end of every phase, and the most that it
    /// reserved.
    pub fn covers_reserved(&self, measured: &Self) -> bool {
        let phases = self.zip_phases(measured).all(|(e, m)| {
            let peak = m.peak_reserved_bytes;
            e.reserved_near(m.reserved_bytes) == m.reserved_bytes
                && peak
                    .is_none_or(|peak| e.peak_reserved_near(peak).is_none_or(|near| near == peak))
        });
        let peak = measured
            .peak_reserved_bytes
            .is_none_or(|peak| self.peak_reserved_near(peak) == Some(peak));
        phases && peak
    }

    /// The most bytes reserved at any time in this estimate; of a range, the value nearest to `measured`.
    pub fn peak_reserved_near(&self, measured: Bytes) -> Option<Bytes> {
        nearest(self.peak_reserved_bytes, self.peak_reserved_range, measured)
    }

    /// The most bytes in use at the end of a phase in this estimate; of a range, the value nearest to `measured`.
    fn live_near(&self, measured: Bytes) -> Bytes {
        self.most(PhaseFigures::live_range, self.live_bytes)
            .nearest(measured)
    }

    /// The most bytes reserved at the end of a phase in this estimate; of a range, the value nearest to
    /// `measured`.
    fn reserved_near(&self, measured: Bytes) -> Bytes {
        self.most(PhaseFigures::reserved_range, self.reserved_bytes)
            .nearest(measured)
    }

    /// The range of the most at the end of a phase; `none` if there are no phases.
    fn most(&self, range: fn(&PhaseFigures) -> Range<Bytes>, none: Bytes) -> Range<Bytes> {
        let ranges = || self.phases.iter().map(range);
        Range {
            least: ranges().map(|range| range.least).max().unwrap_or(none),
            most: ranges().map(|range| range.most).max().unwrap_or(none),
        }
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
    /// In an estimate, the range of the allocations over different queue lags, and with operands that burn does not
    /// overwrite; none if they do not differ, or the range was not needed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub allocations_range: Option<Range<u64>>,
    /// Bytes in use.
    pub live_bytes: Bytes,
    /// In an estimate, the range of the bytes in use, like that of the allocations.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub live_range: Option<Range<Bytes>>,
    /// The most bytes in use within the phase; in a measurement, the most that was sampled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peak_live_bytes: Option<Bytes>,
    /// How often the pools were sampled within the phase.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub readings: Option<u64>,
    /// Bytes reserved by the pools.
    pub reserved_bytes: Bytes,
    /// In an estimate, the range of the reserved bytes over different queue lags; none if it was not needed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reserved_range: Option<Range<Bytes>>,
    /// The most bytes reserved by the pools at once within the phase; in a measurement only if the driver
    /// counts them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peak_reserved_bytes: Option<Bytes>,
    /// In an estimate, the range of that figure over different queue lags; none if it was not needed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peak_reserved_range: Option<Range<Bytes>>,
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
                    allocations_range: None,
                    live_bytes: mark.pools.in_use,
                    live_range: None,
                    peak_live_bytes: mark.peak,
                    readings: mark.readings,
                    reserved_bytes: mark.pools.reserved,
                    reserved_range: None,
                    peak_reserved_bytes: mark.peak_reserved,
                    peak_reserved_range: None,
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
            peak_reserved_range: None,
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

/// The errors of an estimate relative to the measurement; negative where the estimate is too low.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Errors {
    /// Error of the most bytes in use at the end of a phase; zero in the range of the estimates.
    pub live: f64,
    /// Error of the most bytes reserved at the end of a phase; zero in the range of the estimates.
    pub reserved: f64,
    /// Error of the most bytes reserved at any time, if the driver counts them; zero in the range of the
    /// estimates.
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
            relative(estimated.live_near(live), live)
        });
        let within = phases().filter_map(|(estimated, measured)| {
            Some(relative(
                estimated.peak_live_bytes?,
                measured.peak_live_bytes?,
            ))
        });
        Self {
            live: relative(
                estimated.live_near(measured.live_bytes),
                measured.live_bytes,
            ),
            reserved: relative(
                estimated.reserved_near(measured.reserved_bytes),
                measured.reserved_bytes,
            ),
            peak_reserved: measured.peak_reserved_bytes.and_then(|peak| {
                let estimated = estimated.peak_reserved_near(peak)?;
                Some(relative(estimated, peak))
            }),
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

    fn figures(live: u64, reserved: u64) -> Figures {
        Figures {
            live_bytes: Bytes(live),
            peak_live_bytes: None,
            reserved_bytes: Bytes(reserved),
            peak_reserved_bytes: Some(Bytes(reserved)),
            peak_reserved_range: None,
            device_bytes: None,
            phases: vec![PhaseFigures {
                phase: Phase::Forward,
                step: 0,
                allocations: 1,
                allocations_range: None,
                live_bytes: Bytes(live),
                live_range: None,
                peak_live_bytes: None,
                readings: None,
                reserved_bytes: Bytes(reserved),
                reserved_range: None,
                peak_reserved_bytes: None,
                peak_reserved_range: None,
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
    fn what_is_measured_within_the_range_of_the_estimates_is_no_error() {
        let mut estimated = figures(100, 200);
        assert!(!estimated.covers_reserved(&figures(100, 250)));
        assert!(!estimated.covers(&figures(100, 250)));
        estimated.widen(&figures(100, 300));
        assert!(estimated.covers(&figures(100, 250)));
        assert!(!estimated.covers(&figures(101, 250)), "more in use");
        let errors = Errors::of(&estimated, &figures(100, 250));
        assert_eq!((errors.reserved, errors.peak_reserved), (0.0, Some(0.0)));
        let beyond = Errors::of(&estimated, &figures(100, 400));
        assert_eq!(beyond.reserved, -0.25);
        estimated.widen(&figures(110, 200));
        let errors = Errors::of(&estimated, &figures(105, 250));
        assert_eq!((errors.live, errors.worst_phase), (0.0, 0.0));
    }
}
