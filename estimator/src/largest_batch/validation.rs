//! How far a run confirmed the calls that few samples predict: on devices with the same kernels and no more memory replays then
//! tell what a run would.

use recording::Recording;

use super::predictor::Predictor;
use super::scaling::Scaling;
use crate::job::Program;

/// How far runs have confirmed a predictor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Validation {
    /// The batch of the latest run that matched the prediction call by call: smaller batches count as
    /// predicted too, down to the recorded ones.
    predicted: Option<u64>,
}

impl Validation {
    /// Whether some run matched the prediction.
    pub fn is_any(&self) -> bool {
        self.predicted.is_some()
    }

    /// Adds a run of the largest `batch` on a device.
    pub fn add(&mut self, scaling: &Scaling, batch: u64, recording: &Recording) {
        if scaling.matches(batch, recording) {
            self.predicted = Some(batch);
        }
    }

    /// Whether `batch` needs no run: a recording covers it, and a run with as many samples or more was as predicted.
    pub fn covers<P: Program>(&self, predictor: &Predictor<P>, batch: u64) -> bool {
        self.predicted.is_some_and(|most| batch <= most) && predictor.knows(batch)
    }
}
