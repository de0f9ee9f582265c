//! Which cards a build of PyTorch runs on.

use estimator::Gpu;

use super::report::Torch;
use crate::job_info::GpuName;
use crate::resolve::Card;
use crate::user_error::UserError;

/// The least compute capability (times ten) of the cards that programs for a version of CUDA run on. NVIDIA, "CUDA Toolkit
/// 13.0 release notes": Maxwell, Pascal and Volta are no longer supported; "CUDA Toolkit 12.0 release notes": nor is Kepler.
pub fn least_capability(cuda: Option<&str>) -> u32 {
    let major = cuda.and_then(|version| version.split('.').next()?.parse().ok());
    match major {
        Some(13u32..) => 75,
        Some(12) => 50,
        _ => 0,
    }
}

/// Whether PyTorch runs on `gpu` in a build for this version of CUDA.
pub fn runs_on(cuda: Option<&str>, gpu: &Gpu) -> bool {
    let least = least_capability(cuda);
    gpu.compute_capability.is_none_or(|own| own >= least)
}

impl Torch {
    /// `2.15.0`, without what the package was built for.
    pub fn short_version(&self) -> &str {
        self.version.split('+').next().unwrap_or_default()
    }

    /// Checks that this build runs on each of `cards`.
    ///
    /// # Errors
    ///
    /// It does not run on one.
    pub fn check(&self, cards: &[Card]) -> Result<(), UserError> {
        let names: Vec<_> = cards.iter().map(GpuName::new).collect();
        let not_on = self.not_on(&names);
        if not_on.is_empty() {
            return Ok(());
        }
        Err(UserError::new(not_on).hint(
            "`fit-check gpus --fits` with the rest of this question has cards on which it runs; of an older build `fit-check run` follows a program",
        ))
    }

    /// That this build does not run on some of the named cards; empty if it runs on all.
    pub fn not_on<'a>(&self, named: impl IntoIterator<Item = &'a GpuName>) -> String {
        let named = named.into_iter().filter(|name| {
            let mut known = Gpu::all().iter();
            known.any(|gpu| gpu.name == name.name && !runs_on(self.cuda.as_deref(), gpu))
        });
        let named: Vec<_> = named.map(|name| name.name.as_str()).collect();
        if named.is_empty() {
            return String::new();
        }
        let cuda = self.cuda.as_deref().unwrap_or_default();
        let least = f64::from(least_capability(self.cuda.as_deref())) / 10.0;
        format!(
            "this build of PyTorch does not run on {}: CUDA {cuda} needs compute capability {least:.1}",
            named.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_for_cuda_13_do_not_run_on_volta() {
        let (volta, turing) = (Gpu::find("v100-32gb").unwrap(), Gpu::find("t4").unwrap());
        assert!(!runs_on(Some("13.2"), volta) && runs_on(Some("13.2"), turing));
        assert!(runs_on(Some("12.6"), volta));
    }
}
