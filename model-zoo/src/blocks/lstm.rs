//! Long short-term memory with the parameters of torch's, which has the four gates in one
//! matrix. burn's own has one matrix for each gate.

use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig, LstmState};
use burn::tensor::activation::sigmoid;
use burn::tensor::module::linear;
use burn::tensor::{Device, Tensor};

use super::tokens::check_at_most;
use crate::{Error, InputSize, Job};

/// The longest sequence of a recurrent network. burn makes each token a step of its own: to simulate
/// a step of the AWD-LSTM with 100 tokens takes 12 s of a processor, and more tokens take more.
const MAX_STEPS: usize = 500;

/// Checks that the sequences of `job` are short enough for a recurrent network.
///
/// # Errors
///
/// [`Error::Size`] if they are not.
pub(crate) fn check_steps(job: &Job) -> Result<(), Error> {
    let why = "since burn makes each token a step of its own";
    check_at_most(InputSize::Seq, job.seq(), MAX_STEPS, why)
}

/// The configuration of an [`Lstm`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct LstmConfig {
    /// Width of the input.
    pub input: usize,
    /// Width of the state and of the output.
    pub hidden: usize,
    /// Share of the hidden-to-hidden weights that are set to zero in each batch (DropConnect;
    /// Merity, Keskar, Socher 2017, arXiv 1708.02182).
    pub weight_drop: f64,
    /// Whether the layer reads the sequence from its end.
    pub reverse: bool,
}

impl LstmConfig {
    /// A layer that reads forwards and keeps all weights.
    pub fn new(input: usize, hidden: usize) -> Self {
        Self {
            input,
            hidden,
            weight_drop: 0.0,
            reverse: false,
        }
    }

    /// The layer on `device`.
    pub fn init(&self, device: &Device) -> Lstm {
        Lstm {
            input: LinearConfig::new(self.input, 4 * self.hidden).init(device),
            hidden: LinearConfig::new(self.hidden, 4 * self.hidden).init(device),
            weight_drop: DropoutConfig::new(self.weight_drop).init(),
            width: self.hidden,
            reverse: self.reverse,
        }
    }

    /// A layer that reads forwards and one that reads backwards, on `device`.
    pub fn bidirectional(&self, device: &Device) -> BiLstm {
        let backward = Self {
            reverse: true,
            ..*self
        };
        BiLstm {
            forward: self.init(device),
            backward: backward.init(device),
        }
    }
}

/// One layer in one direction, computed step by step, as burn's own is.
#[derive(Module, Debug)]
pub(crate) struct Lstm {
    input: Linear,
    hidden: Linear,
    weight_drop: Dropout,
    width: usize,
    reverse: bool,
}

impl Lstm {
    /// The outputs `[seq, batch, hidden]` and the last state, from `x: [seq, batch, input]` and
    /// the state before, which is zero if `state` is `None`.
    pub fn forward(&self, x: Tensor<3>, state: Option<LstmState<2>>) -> (Tensor<3>, LstmState<2>) {
        let [seq, batch, _] = x.dims();
        let mut state =
            state.unwrap_or_else(|| LstmState::initial([batch, self.width], &x.device()));
        let weight = self.weight_drop.forward(self.hidden.weight.val());
        let bias = self.hidden.bias.as_ref().map(|bias| bias.val());

        let mut outputs = Vec::with_capacity(seq);
        for step in 0..seq {
            let at = if self.reverse { seq - 1 - step } else { step };
            let now = x.clone().narrow(0, at, 1).squeeze_dim(0);
            let gates =
                self.input.forward::<2>(now) + linear(state.hidden, weight.clone(), bias.clone());
            state = advance(gates, state.cell, None);
            outputs.push(state.hidden.clone());
        }
        if self.reverse {
            outputs.reverse();
        }
        (Tensor::stack(outputs, 0), state)
    }
}

/// Two layers that read a sequence in both directions.
#[derive(Module, Debug)]
pub(crate) struct BiLstm {
    forward: Lstm,
    backward: Lstm,
}

impl BiLstm {
    /// `[seq, batch, 2 * hidden]` from `x: [seq, batch, input]`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let (forwards, _) = self.forward.forward(x.clone(), None);
        let (backwards, _) = self.backward.forward(x, None);
        Tensor::cat(vec![forwards, backwards], 2)
    }
}

/// The state after one step, from `cell: [batch, hidden]` and `gates: [batch, 4 * hidden]`
/// (input, forget, candidate, output, in torch's order). `clip` bounds the cell's absolute value.
pub(crate) fn advance(gates: Tensor<2>, cell: Tensor<2>, clip: Option<f64>) -> LstmState<2> {
    let [input, forget, candidate, output]: [Tensor<2>; 4] =
        gates.chunk(4, 1).try_into().expect("there are four gates");
    let cell = sigmoid(forget) * cell + sigmoid(input) * candidate.tanh();
    let cell = match clip {
        Some(bound) => cell.clamp(-bound, bound),
        None => cell,
    };
    let hidden = sigmoid(output) * cell.clone().tanh();
    LstmState { cell, hidden }
}

/// `states` detached from the graph of the batch that computed them, for the next batch.
pub(crate) fn detached(states: Vec<LstmState<2>>) -> Vec<LstmState<2>> {
    let detached = |state: LstmState<2>| LstmState {
        cell: state.cell.detach(),
        hidden: state.hidden.detach(),
    };
    states.into_iter().map(detached).collect()
}

#[cfg(test)]
mod tests {
    use burn::module::Param;
    use burn::nn::LstmConfig as BurnConfig;
    use burn::tensor::{Distribution, Tolerance};

    use super::*;
    use crate::test_support;

    /// burn's own layer with the same weights gives the same outputs.
    #[test]
    fn agrees_with_burns_own() {
        let device = test_support::flex();
        let ours = LstmConfig::new(3, 5).init(&device);
        let mut theirs = BurnConfig::new(3, 5, true).init(&device);
        let part = |from: &Linear, gate: usize| Linear {
            weight: Param::from_tensor(from.weight.val().narrow(1, gate * 5, 5)),
            bias: from
                .bias
                .as_ref()
                .map(|bias| Param::from_tensor(bias.val().narrow(0, gate * 5, 5))),
        };
        let gates = [
            &mut theirs.input_gate,
            theirs.forget_gate.as_mut().unwrap(),
            &mut theirs.cell_gate,
            &mut theirs.output_gate,
        ];
        for (index, gate) in gates.into_iter().enumerate() {
            gate.input_transform = part(&ours.input, index);
            gate.hidden_transform = part(&ours.hidden, index);
        }
        let x = Tensor::<3>::random([4, 2, 3], Distribution::Default, &device);
        let (expected, _) = theirs.forward(x.clone().swap_dims(0, 1), None);
        let (found, _) = ours.forward(x, None);
        found
            .into_data()
            .assert_approx_eq::<f32>(&expected.swap_dims(0, 1).into_data(), Tolerance::default());
    }

    /// A layer that reads backwards computes what one that reads forwards computes of the reversed
    /// sequence.
    #[test]
    fn reverse_reads_from_the_end() {
        let device = test_support::flex();
        let forward = LstmConfig::new(3, 5).init(&device);
        let backward = Lstm {
            reverse: true,
            ..forward.clone()
        };
        let x = Tensor::<3>::random([4, 2, 3], Distribution::Default, &device);
        let (expected, _) = forward.forward(x.clone().flip([0]), None);
        let (found, _) = backward.forward(x, None);
        found
            .into_data()
            .assert_approx_eq::<f32>(&expected.flip([0]).into_data(), Tolerance::default());
    }
}
