//! Layers with weight normalisation (Salimans, Kingma 2016, "Weight Normalization", arXiv
//! 1602.07868): their parameters are the direction and the length of the weight. Each step
//! computes the weight as a tensor, as torch's `weight_norm` does.

use burn::module::{Module, Param};
use burn::nn::Initializer;
use burn::tensor::module::{conv1d, linear};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Device, Tensor};

/// The configuration of a [`NormedLinear`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct NormedLinearConfig {
    /// Channels of the input and the output.
    pub channels: [usize; 2],
    /// Initial length of the weights of each output.
    pub gain: f64,
}

impl NormedLinearConfig {
    /// The layer on `device`.
    pub fn init(&self, device: &Device) -> NormedLinear {
        let [input, output] = self.channels;
        NormedLinear {
            direction: normal(self.gain, input).init([input, output], device),
            gain: Initializer::Constant { value: self.gain }.init([output], device),
            bias: Initializer::Zeros.init([output], device),
        }
    }
}

/// A linear layer with a normalised weight.
#[derive(Module, Debug)]
pub(crate) struct NormedLinear {
    direction: Param<Tensor<2>>,
    gain: Param<Tensor<1>>,
    bias: Param<Tensor<1>>,
}

impl NormedLinear {
    /// `[.., output]` from `x: [.., input]`.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let direction = self.direction.val();
        let length = direction.clone().square().sum_dim(0).sqrt();
        let weight = direction * (self.gain.val().unsqueeze() / length);
        linear(x, weight, Some(self.bias.val()))
    }
}

/// The configuration of a [`NormedConv`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct NormedConvConfig {
    /// Channels of the input and the output.
    pub channels: [usize; 2],
    /// Steps that each output reads.
    pub kernel: usize,
    /// Zeros before and after the sequence.
    pub padding: usize,
    /// Initial length of the weights of each output.
    pub gain: f64,
}

impl NormedConvConfig {
    /// The layer on `device`.
    pub fn init(&self, device: &Device) -> NormedConv {
        let [input, output] = self.channels;
        NormedConv {
            direction: normal(self.gain, input * self.kernel)
                .init([output, input, self.kernel], device),
            gain: Initializer::Constant { value: self.gain }.init([output], device),
            bias: Initializer::Zeros.init([output], device),
            padding: self.padding,
        }
    }
}

/// A convolution over a sequence, with a normalised weight.
#[derive(Module, Debug)]
pub(crate) struct NormedConv {
    direction: Param<Tensor<3>>,
    gain: Param<Tensor<1>>,
    bias: Param<Tensor<1>>,
    padding: usize,
}

impl NormedConv {
    /// `[batch, output, seq + 2 * padding - kernel + 1]` from `x: [batch, input, seq]`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let direction = self.direction.val();
        let [output, ..] = direction.dims();
        let rows = direction.clone().square().reshape([output as i32, -1]);
        let length = rows.sum_dim(1).sqrt().reshape([output, 1, 1]);
        let weight = direction * (self.gain.val().reshape([output, 1, 1]) / length);
        let padding = [(self.padding, self.padding)];
        let options = ConvOptions::new_with_padding([1], padding, [1], 1);
        conv1d(x, weight, Some(self.bias.val()), options)
    }
}

/// The initializer of the weights from `inputs` to one output, whose expected length is `gain`.
fn normal(gain: f64, inputs: usize) -> Initializer {
    Initializer::Normal {
        mean: 0.0,
        std: gain / (inputs as f64).sqrt(),
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Tolerance;

    use super::*;
    use crate::test_support;

    /// The length of an output's weights is its gain, whatever the length of the direction.
    #[test]
    fn weights_are_as_long_as_the_gain() {
        let device = test_support::flex();
        let config = NormedLinearConfig {
            channels: [2, 1],
            gain: 10.0,
        };
        let mut layer = config.init(&device);
        layer.direction = Param::from_data([[3.0], [4.0]], &device);
        let weight = layer.forward(Tensor::<2>::eye(2, &device)).into_data();
        let expected = Tensor::<2>::from_data([[6.0], [8.0]], &device).into_data();
        weight.assert_approx_eq::<f32>(&expected, Tolerance::default());
    }

    #[test]
    fn a_convolution_is_normalised_by_output() {
        let device = test_support::flex();
        let config = NormedConvConfig {
            channels: [1, 2],
            kernel: 2,
            padding: 0,
            gain: 5.0,
        };
        let mut layer = config.init(&device);
        layer.direction = Param::from_data([[[3.0, 4.0]], [[0.0, 0.5]]], &device);
        let x = Tensor::<3>::from_data([[[1.0, 0.0, 1.0]]], &device);
        let expected = Tensor::<3>::from_data([[[3.0, 4.0], [0.0, 5.0]]], &device).into_data();
        let found = layer.forward(x).into_data();
        found.assert_approx_eq::<f32>(&expected, Tolerance::default());
    }
}
