//! Real devices and their names.

use std::str::FromStr;

use burn::tensor::{Device, DeviceType};
use estimator::{DeviceDescription, Runtime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoEnumIterator, VariantNames};

use crate::user_error::{UserError, either};

/// A runtime of burn on which this program can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display, strum::EnumString, strum::EnumIter, strum::VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Backend {
    /// Vulkan, Metal or DX12, with kernels in WGSL.
    Wgpu,
    /// Vulkan, with kernels in SPIR-V.
    #[cfg(feature = "vulkan")]
    Vulkan,
    /// NVIDIA's CUDA.
    #[cfg(feature = "cuda")]
    Cuda,
    /// Apple's Metal.
    #[cfg(feature = "metal")]
    Metal,
}

impl Backend {
    /// The values of `--device` that need a cargo feature of the same name.
    const FEATURES: [&'static str; 3] = ["vulkan", "cuda", "metal"];

    fn kind(self) -> DeviceType {
        match self {
            Self::Wgpu => DeviceType::Wgpu,
            #[cfg(feature = "vulkan")]
            Self::Vulkan => DeviceType::Vulkan,
            #[cfg(feature = "cuda")]
            Self::Cuda => DeviceType::Cuda,
            #[cfg(feature = "metal")]
            Self::Metal => DeviceType::Metal,
        }
    }

    /// The runtime of a simulated card like it.
    pub fn runtime(self) -> Runtime {
        match self {
            Self::Wgpu => Runtime::Wgpu,
            #[cfg(feature = "vulkan")]
            Self::Vulkan => Runtime::Vulkan,
            #[cfg(feature = "cuda")]
            Self::Cuda => Runtime::Cuda,
            // burn drives Metal through wgpu, with kernels in WGSL.
            #[cfg(feature = "metal")]
            Self::Metal => Runtime::Wgpu,
        }
    }
}

/// A device, as the command line names it: `wgpu`, or `wgpu:1` for the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct DeviceName {
    /// The backend with which burn drives it.
    pub driven: Backend,
    /// Its index among the devices of this backend.
    pub index: usize,
}

impl std::fmt::Display for DeviceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.index {
            0 => write!(f, "{}", self.driven),
            index => write!(f, "{}:{index}", self.driven),
        }
    }
}

impl FromStr for DeviceName {
    type Err = UserError;

    fn from_str(text: &str) -> Result<Self, UserError> {
        let lower = text.to_lowercase();
        let (driven, index) = lower.split_once(':').unwrap_or((&lower, "0"));
        let unknown = || UserError::invalid_value("--device", text);
        let index = index
            .parse()
            .map_err(|_| unknown().hint("--device is wgpu, or wgpu:1 for the second device"))?;
        match Backend::from_str(driven) {
            Ok(driven) => Ok(Self { driven, index }),
            Err(_) if Backend::FEATURES.contains(&driven) => Err(UserError::new(format!(
                "this build cannot measure on {driven}"
            ))
            .hint(format!(
                "build it with `cargo build --release --features {driven}`; this one has {}",
                either(Backend::VARIANTS)
            ))),
            Err(_) => Err(unknown().hint(format!("--device is {}", either(Backend::VARIANTS)))),
        }
    }
}

impl DeviceName {
    /// The device; none if it does not exist.
    pub(super) fn find(self) -> Option<Device> {
        Device::enumerate(self.driven.kind())
            .into_iter()
            .nth(self.index)
    }

    /// The error for a device that does not exist, with a hint.
    pub fn missing(self) -> UserError {
        let error = UserError::new(format!("no device for --device {self}"));
        match self.driven {
            #[cfg(feature = "cuda")]
            Backend::Cuda => error.hint(
                "CUDA needs NVIDIA's driver (libcuda.so.1). Without a GPU, --gpu rtx-3090 trains on CUDA's own runtime with a driver that counts the memory of that card and runs nothing",
            ),
            _ => error.hint(
                "install the driver of your GPU with its Vulkan part; on a machine without a GPU the package mesa-vulkan-drivers brings a software device. `fit-check verify --list` shows what was found",
            ),
        }
    }
}

/// The description of a device, for people and records.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct DeviceReport {
    /// The name that the device reports.
    pub name: String,
    /// The backend with which burn drives it.
    pub runtime: String,
    /// The graphics API under it, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// The driver and its version, if the API reports them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The kind of device, which decides what a measurement on it proves.
    pub kind: DeviceKind,
}

/// A kind of device. Every answer says on which kind it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DeviceKind {
    /// A GPU.
    Gpu,
    /// The host's processor plays the device and computes everything.
    Software,
    /// CUDA's own runtime on the counting driver: there is no GPU, and nothing is computed.
    Counting,
}

impl DeviceKind {
    /// The remark that follows the device's name; none for a GPU.
    pub fn remark(self) -> Option<&'static str> {
        match self {
            Self::Gpu => None,
            Self::Software => Some("a software device: the processor plays the GPU"),
            Self::Counting => {
                Some("CUDA's own runtime on a driver that counts memory: no GPU, nothing computed")
            }
        }
    }
}

impl DeviceReport {
    /// The report on a device that reports the name `called` and is driven as `name` says. `driver` is the
    /// version of its driver, if something other than the graphics API reports it.
    pub(super) fn new(name: DeviceName, called: &str, driver: Option<String>) -> Self {
        let adapters = match name.driven {
            #[cfg(feature = "cuda")]
            Backend::Cuda => Vec::new(),
            _ => adapters(),
        };
        let adapter = adapters.into_iter().find(|adapter| adapter.name == called);
        Self {
            name: called.into(),
            runtime: name.driven.to_string(),
            api: adapter.as_ref().map(|adapter| adapter.backend.to_string()),
            driver: adapter
                .as_ref()
                .map(|adapter| format!("{} {}", adapter.driver, adapter.driver_info))
                .or(driver),
            kind: match adapter.map(|adapter| adapter.device_type) {
                Some(wgpu::DeviceType::Cpu) => DeviceKind::Software,
                _ => DeviceKind::Gpu,
            },
        }
    }
}

/// The adapters of the native graphics APIs; those of OpenGL only if there are no others, as in CubeCL
/// (`AutoGraphicsApi::chain` of `cubecl-wgpu` 0.11.3).
fn adapters() -> Vec<wgpu::AdapterInfo> {
    let native = adapters_of(wgpu::Backends::PRIMARY);
    match native.is_empty() {
        true => adapters_of(wgpu::Backends::GL),
        false => native,
    }
}

fn adapters_of(apis: wgpu::Backends) -> Vec<wgpu::AdapterInfo> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: apis,
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    cubecl_environment::future::block_on(instance.enumerate_adapters(apis))
        .iter()
        .map(wgpu::Adapter::get_info)
        .collect()
}

/// Every device on which this program can measure. It opens each of them.
pub(super) fn list() -> Vec<Found> {
    let found = Backend::iter().flat_map(|driven| {
        let devices = Device::enumerate(driven.kind()).into_iter().enumerate();
        devices.filter_map(move |(index, device)| {
            let name = DeviceName { driven, index };
            let description = DeviceDescription::of(&device)?;
            Some(Found {
                device: name.to_string(),
                report: DeviceReport::new(name, &description.name, None),
            })
        })
    });
    found.collect()
}

/// A device that was found.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Found {
    /// Its name for `--device`.
    pub device: String,
    /// Its description.
    #[serde(flatten)]
    pub report: DeviceReport,
}
