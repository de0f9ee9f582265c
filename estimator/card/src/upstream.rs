//! Undocumented details of burn and CubeCL that this project relies on: log lines, names of kernels and
//! threads, texts of panics. The compiler does not notice when burn changes one of them.
//!
//! `tests/tests/upstream.rs` has a test of each detail in this file, except for these:
//!
//! - [`compute_capability`]: the test below is of the form of the text alone.
//! - [`THROUGHPUT_KERNELS`] and the text in [`unavailable_feature`]: no test names them.
//!
//! More such details stand where they are needed, and have no test there:
//!
//! - `launch_time.rs`: names of kernels that multiply matrices, and of throughput probes. The counting driver shares
//!   that file and has no dependencies.
//! - `throughput_probes.rs`: names, types and arguments of the kernels that probe a card's throughput.
//! - `device_spec.rs`: that burn's fusers ask a card only for `max_bindings` (`KernelGroup::of_any_generation`). The test
//!   `a_job_that_ran_before_runs_as_a_new_one` in `tests/tests/tuning.rs` depends on it.
//! - `estimator/src/modules.rs`: the prefix of the names of running statistics (`STATISTIC`). The number of buffers
//!   of ResNet-50 in `tests/tests/simulated_card.rs` depends on it.
//! - `estimator/src/tensor.rs`: the line before the cause in the text of CubeCL's errors (`cause`).
//! - `estimator/src/card.rs`: burn's configuration of fusion, as JSON (`configure_burn`).
//! - `fit-check/src/measure/parent.rs`: texts of errors for want of memory (`NO_MEMORY`).
//! - `fit-check/src/counting_driver.rs`: folders and an environment variable of CubeCL (`CUDA_ROOTS`, `ENVIRONMENT`).
//! - `fit-check/src/cargo/run.rs`: the environment variable that chooses burn's device (`BURN_DEVICE`).

/// The target of the log to which CubeCL's tuner writes: `cubecl-runtime` 0.11.3.
pub const TUNER_LOG: &str = "cubecl::autotune";

/// The target of the log to which CubeCL's tuner writes `Tuning KEY` when it is asked for a kernel that it does not
/// know, and nothing else: `cubecl-runtime` 0.11.3, `src/tune/tuner.rs`.
pub const TUNER_REQUESTS: &str = "cubecl_runtime::tune::tuner";

/// The operation in a line of [`TUNER_REQUESTS`].
pub fn tuner_request(line: &str) -> Option<&str> {
    line.strip_prefix("Tuning ")
}

/// The target of the log to which CubeCL's tuner writes a line if it has chosen a kernel although it could time none, and
/// nothing else: `cubecl-runtime` 0.11.3, `src/tune/schedule.rs`.
pub const TUNER_UNTIMED: &str = "cubecl_runtime::tune::schedule";

/// The target of the log to which burn writes, at the level `basic`, a line for each plan that its search for what it can
/// fuse ends with, and nothing else: `burn-fusion` 0.22.1, `src/search/optimization/blocks.rs`.
pub const FUSION_LOG: &str = "burn::fusion";

/// The chosen candidate and the operation in a line of the tuner's log,
/// `Fastest result NAME-KEY. Top 3 times: …`: `cubecl-runtime` 0.11.3.
pub fn tuner_choice(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix("Fastest result ")?;
    let (line, _) = line.split_once(". Top 3 times")?;
    line.split_once('-')
}

/// The path of the kernels with which CubeCL measures the throughput of a device: `cubecl-std` 0.11.3.
pub const THROUGHPUT_KERNELS: &str = "cubecl_std::throughput::";

/// Whether a panic in the source file `file` is that of a throughput probe whose launches take no time, since
/// nothing runs or the card has no memory for their output: the number of repetitions no longer fits into 32
/// bits (`InputScalar::new` of `cubecl-core` 0.11.3). CubeCL catches this panic, and tunes without the probe.
pub fn is_probe_overflow(file: &str) -> bool {
    file.contains("cubecl-core") && file.ends_with("src/frontend/scalar.rs")
}

/// Whether `error` is that of a buffer for which the card had no memory: `cubecl-server` 0.11.3 logs the refused
/// allocation, and whoever asks for the buffer later hears this alone (`memory_manage.rs`, `error_graph.rs`).
pub fn is_unallocated(error: &str) -> bool {
    error.contains("Memory location was never initialized")
        || error.contains("was never allocated: the reservation behind it failed")
}

/// Part of the type names of kernels that divide a product among planes: those with matrix units, and
/// [`PLANE_VECTORS`] (`cubek-matmul` 0.3.1, which convolutions use too).
pub const PLANES: &str = "PlanePartitioner";

/// Part of the arguments that a kernel is compiled with if its planes multiply a matrix with a vector, without matrix
/// units: `TileMatmulKind` of `cubek-matmul` 0.3.1, `src/multi_level/components/tile/mod.rs`.
pub const PLANE_VECTORS: &str = "PlaneVec";

/// The text before the missing feature in a panic about an unavailable kernel: `MatmulAvailabilityError` and
/// similar errors of `cubek-matmul` and `cubek-attention` 0.3.1.
const FEATURE_UNAVAILABLE: &str = "because a required feature is unavailable: ";

/// The feature that a card lacks, if `panic` says that burn has no kernel without that feature.
pub fn unavailable_feature(panic: &str) -> Option<&str> {
    let (_, feature) = panic.split_once(FEATURE_UNAVAILABLE)?;
    let line = feature.lines().next().unwrap_or_default();
    Some(line.trim_end_matches('.'))
}

/// Whether `name` is the name of a thread that CubeCL started for a device: `cubecl-common` 0.11.3,
/// `src/device/handle/channel.rs`.
pub fn is_device_thread(name: &str) -> bool {
    name.starts_with("DS")
}

/// The compute capability times ten of a CUDA device whose fingerprint is `target`, `ptx_sm86` or
/// `ptx_sm90a`: `cubecl-cuda` 0.11.3, `src/runtime.rs`.
pub fn compute_capability(target: &str) -> Option<u32> {
    let version = target.strip_prefix("ptx_sm")?;
    version.trim_end_matches(char::is_alphabetic).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_of_the_tuner_is_read() {
        let line = "Fastest result simple-Key { m: 8 }. Top 3 times: [1ms]";
        assert_eq!(tuner_choice(line), Some(("simple", "Key { m: 8 }")));
        assert_eq!(tuner_choice("Tuning Key"), None);
        assert_eq!(tuner_request("Tuning Key { m: 8 }"), Some("Key { m: 8 }"));
    }

    #[test]
    fn a_compute_capability_is_read() {
        assert_eq!(compute_capability("ptx_sm86"), Some(86));
        assert_eq!(compute_capability("ptx_sm90a"), Some(90));
        assert_eq!(compute_capability("spirv"), None);
    }
}
