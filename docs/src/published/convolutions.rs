//! The chain of convolutions with which Dettmers (2016) shows what a step keeps in memory.

use std::sync::Mutex;

use burn::nn::conv::Conv2dConfig;
use burn::nn::pool::MaxPool2dConfig;
use burn::tensor::{FloatDType, Tensor};
use estimator::{Bytes, DeviceSpec, Phase, Runtime, simulate};

use crate::text_table;
use fit_check::output::markdown;

/// A layer of a chain, and the MiB that the article gives for it.
enum Step {
    Conv {
        side: usize,
        stride: usize,
        channels: usize,
        text: u32,
    },
    Pool {
        text: u32,
    },
}

const BATCH: usize = 128;
const CHANNELS: usize = 3;
const SIDE: usize = 250;

/// "Activations and errors": each output is counted twice.
const COPIES: u64 = 2;

/// The tables of both chains.
///
/// # Errors
///
/// A chain cannot be run.
pub fn tables() -> anyhow::Result<String> {
    use Step::{Conv, Pool};
    let conv = |side, stride, channels, text| Conv {
        side,
        stride,
        channels,
        text,
    };
    let plain = [
        conv(3, 1, 32, 1906),
        conv(3, 1, 64, 3720),
        conv(3, 1, 96, 5444),
    ];
    let strided = [
        conv(3, 2, 32, 952),
        Pool { text: 238 },
        conv(3, 1, 64, 240),
        conv(3, 1, 96, 340),
        conv(1, 1, 32, 113),
    ];
    Ok(format!("{}\n{}", table(&plain)?, table(&strided)?))
}

fn table(steps: &[Step]) -> anyhow::Result<String> {
    let shapes = run(steps)?;
    let rows = steps.iter().zip(&shapes).map(|(step, shape)| {
        let (name, text) = match step {
            Step::Conv {
                side,
                stride: 1,
                text,
                ..
            } => (format!("convolution {side}x{side}"), text),
            Step::Conv {
                side, stride, text, ..
            } => (format!("convolution {side}x{side}, stride {stride}"), text),
            Step::Pool { text } => ("pooling 2x2".to_string(), text),
        };
        let [_, channels, height, width] = shape;
        let elements = shape.iter().map(|size| *size as u64).product::<u64>();
        let bytes = Bytes(elements * 4 * COPIES);
        vec![
            name,
            format!("{channels}x{height}x{width}"),
            format!("{:.1}", bytes.as_f64() / Bytes::mib(1).as_f64()),
            text.to_string(),
        ]
    });
    let table = text_table(
        [
            "step",
            "output of a sample",
            "MiB, twice",
            "MiB in the text",
        ],
        rows,
    );
    Ok(markdown::render(&[table]).trim_end().to_string() + "\n")
}

/// The shapes of the outputs, from a run of burn on a simulated card.
fn run(steps: &[Step]) -> anyhow::Result<Vec<[usize; 4]>> {
    let shapes = Mutex::new(Vec::new());
    simulate(
        DeviceSpec::unlimited(Runtime::Cuda),
        FloatDType::F32,
        |run| {
            let mut outputs = Vec::new();
            let device = run.device();
            let mut maps = Tensor::<4>::zeros([BATCH, CHANNELS, SIDE, SIDE], &device);
            for step in steps {
                maps = match step {
                    Step::Conv {
                        side,
                        stride,
                        channels,
                        ..
                    } => {
                        let [_, before, _, _] = maps.dims();
                        Conv2dConfig::new([before, *channels], [*side; 2])
                            .with_stride([*stride; 2])
                            .init(&device)
                            .forward(maps)
                    }
                    Step::Pool { .. } => MaxPool2dConfig::new([2; 2])
                        .with_strides([2; 2])
                        .init()
                        .forward(maps),
                };
                outputs.push(maps.dims());
            }
            *shapes.lock().expect("nobody panicked with it") = outputs;
            run.end(Phase::Forward);
        },
    )?;
    Ok(shapes.into_inner().expect("nobody panicked with it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 250 - 3 + 1 = 248, and so on: 1922, 3782.25 and 5581.5 MiB with activations and errors.
    #[test]
    fn a_map_loses_two_pixels_of_its_side_to_a_kernel_of_three() {
        let page = tables().unwrap();
        for figure in [
            "32x248x248 | 1922.0",
            "64x246x246 | 3782.2",
            "96x244x244 | 5581.5",
        ] {
            assert!(page.contains(figure), "{page}");
        }
        for figure in ["32x124x124 | 480.5", "32x62x62 | 120.1", "64x60x60 | 225.0"] {
            assert!(page.contains(figure), "{page}");
        }
    }
}
