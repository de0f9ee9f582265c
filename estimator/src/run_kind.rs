//! The runs in which a step has to complete to fit.

use std::fmt;

use recording::QueueLag;
use serde::{Deserialize, Serialize};

use crate::card::{DeviceSpec, InPlace};
use crate::{Error, Tuning};

/// In what a run of a step can differ from another on the same device: the pools then have other pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunKind {
    /// Whether burn's tuner knows the kernels, as in every run of a process but the first.
    pub tuning: Tuning,
    /// How far the device's thread is behind the program.
    pub queue_lag: QueueLag,
    /// Whether burn overwrites operands.
    pub in_place: InPlace,
}

impl RunKind {
    /// The kind of the runs on a device like `device`.
    pub fn on(device: &DeviceSpec) -> Self {
        let simulation = &device.simulation;
        Self {
            tuning: simulation.tuning,
            queue_lag: simulation.queue_lag,
            in_place: simulation.in_place,
        }
    }

    /// The same run with `queue_lag`.
    pub fn with_queue_lag(self, queue_lag: QueueLag) -> Self {
        Self { queue_lag, ..self }
    }

    /// Devices like `device`, with the same kernels tuned, in the other runs that a step has to complete.
    pub fn others(device: &DeviceSpec) -> impl Iterator<Item = DeviceSpec> {
        let lagged = QueueLag::REQUIRED
            .into_iter()
            .map(|lag| device.clone().with_queue_lag(lag));
        lagged.chain([device.clone().with_in_place(InPlace::Never)])
    }

    /// Whether every run of a process after the first is of this kind, unless one of two races ends otherwise.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// What completes the sentence "it does not fit": nothing for the usual run.
impl fmt::Display for RunKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tuning == Tuning::Cold {
            f.write_str(" in the first run, in which burn tunes its kernels")?;
        }
        if self.queue_lag != QueueLag::None {
            f.write_str(" where the device's thread is behind the program")?;
        }
        if self.in_place != InPlace::WhenPossible {
            f.write_str(" where burn overwrites no operand")?;
        }
        Ok(())
    }
}

/// A run that a step has to complete to fit on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Required {
    /// A run with kernels that burn tuned before; also with each of [`QueueLag::REQUIRED`].
    Tuned,
    /// The same where burn overwrites no operand that the device's thread may be allocating ([`InPlace::Never`]).
    NotOverwriting,
    /// The first run of a process, in which burn tunes its kernels; also with each of [`QueueLag::REQUIRED`].
    First,
}

impl Required {
    /// All of them; those of one tuning if `only` that counts.
    pub fn runs(only: Option<Tuning>) -> &'static [Self] {
        let tunes = cfg!(feature = "autotune");
        match only {
            Some(Tuning::Cold) => &[Self::First],
            Some(Tuning::Warm) => &[Self::Tuned, Self::NotOverwriting],
            // Without a tuner, the first run is as all others.
            None if !tunes => &[Self::Tuned, Self::NotOverwriting],
            None => &[Self::Tuned, Self::NotOverwriting, Self::First],
        }
    }

    /// A device like `device` in this run.
    pub fn on(self, device: &DeviceSpec) -> DeviceSpec {
        let (tuning, in_place) = match self {
            Self::Tuned => (Tuning::Warm, InPlace::WhenPossible),
            Self::NotOverwriting => (Tuning::Warm, InPlace::Never),
            Self::First => (Tuning::Cold, InPlace::WhenPossible),
        };
        let device = device.clone().with_queue_lag(QueueLag::None);
        device.with_tuning(tuning).with_in_place(in_place)
    }

    /// The run that was tried; `None` if it tells nothing: where burn overwrites no operand, its tuner can find more to tune
    /// in run after run.
    pub fn if_it_tells<T>(self, run: Result<T, Error>) -> Result<Option<T>, Error> {
        match (self, run) {
            (Self::NotOverwriting, Err(Error::NeverTuned)) => Ok(None),
            (_, run) => run.map(Some),
        }
    }

    /// The lags with which the run has to complete, besides that of a thread that is level with the program.
    pub fn lags(self) -> &'static [QueueLag] {
        match self {
            Self::Tuned | Self::First => &QueueLag::REQUIRED,
            Self::NotOverwriting => &[],
        }
    }
}
