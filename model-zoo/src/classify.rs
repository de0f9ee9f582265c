//! The training step of image classifiers.

use burn::module::Module;
use burn::tensor::{Device, Distribution, Int, Tensor};

use crate::blocks::cross_entropy;
use crate::{Job, Observer, supervised};

/// Trains `network` with the cross-entropy of the scores `[batch, classes]` that `forward`
/// computes from images `[batch, 3, height, width]`.
///
/// # Errors
///
/// The error of the observer, if it stops the step.
pub(crate) fn classify<M: Module, O: Observer>(
    network: M,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
    forward: impl Fn(&M, Tensor<4>) -> Tensor<2>,
) -> Result<(), O::Stop> {
    supervised(
        network,
        job,
        device,
        steps,
        observer,
        |device| labelled_images(job, device),
        |network, (images, labels)| cross_entropy(forward(network, images), labels),
    )
}

/// A batch: images `[batch, 3, height, width]` and their classes `[batch]`.
pub(crate) fn labelled_images(job: &Job, device: &Device) -> (Tensor<4>, Tensor<1, Int>) {
    let [height, width] = job.image();
    let shape = [job.batch, 3, height, width];
    (
        Tensor::random(shape, Distribution::Default, device),
        Tensor::zeros([job.batch], device),
    )
}
