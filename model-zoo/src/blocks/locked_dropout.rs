//! Dropout with one mask for a whole sequence.

use burn::tensor::{Distribution, Tensor};

/// Dropout of `share` of the channels of `x`, with the same mask for all steps of a sequence (Gal,
/// Ghahramani 2015, arXiv 1512.05287). `steps` is the index of the dimension of the steps.
pub(crate) fn locked_dropout(x: Tensor<3>, share: f64, steps: usize) -> Tensor<3> {
    if share == 0.0 || !x.device().is_autodiff() {
        return x;
    }
    let mut shape = x.dims();
    shape[steps] = 1;
    let kept = Distribution::Bernoulli(1.0 - share);
    let mask = Tensor::<3>::random(shape, kept, &x.device());
    x * mask.div_scalar(1.0 - share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    #[test]
    fn a_channel_is_dropped_for_all_steps_or_none() {
        let device = test_support::flex().autodiff();
        let x = Tensor::<3>::ones([4, 3, 50], &device);
        let dropped = locked_dropout(x, 0.5, 0);
        let (first, last) = (
            dropped.clone().narrow(0, 0, 1),
            dropped.clone().narrow(0, 3, 1),
        );
        first.into_data().assert_eq(&last.into_data(), true);
        // The kept channels are doubled, so the mean is still about 1.
        let mean: f32 = dropped.mean().into_scalar();
        assert!((0.5..1.5).contains(&mean), "{mean}");
    }
}
