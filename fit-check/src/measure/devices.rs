//! Real devices: which there are, and what they are called.

use std::str::FromStr;

use burn::tensor::{Device, DeviceType};
use estimator::{DeviceDescription, Runtime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoEnumIterator, VariantNames};

use crate::user_error::{UserError, either};

/// A runtime of burn that this program can measure with.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::EnumIter,
    strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
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
    /// What `--device` may name, and the cargo feature that it takes.
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

    /// The runtime that a simulated card of this kind has.
    pub fn runtime(self) -> Runtime {
        match self {
            Self::Wgpu => Runtime::Wgpu,
            #[cfg(feature = "vulkan")]
            Self::Vulkan => Runtime::Vulkan,
            #[cfg(feature = "cuda")]
            Self::Cuda => Runtime::Cuda,
            // Metal is reached through wgpu and compiles WGSL there.
            #[cfg(feature = "metal")]
            Self::Metal => Runtime::Wgpu,
        }
    }
}

/// A device, as it is named on the command line: `wgpu`, or `wgpu:1` for the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct DeviceName {
    /// How burn drives it.
    pub driven: Backend,
    /// Its place among the devices that are driven so.
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
        let unknown = || UserError::new(format!("`{text}` is no value of --device"));
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
    /// The device itself; none if it is not there.
    pub(super) fn find(self) -> Option<Device> {
        Device::enumerate(self.driven.kind())
            .into_iter()
            .nth(self.index)
    }

    /// What helps where there is no such device.
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

/// A device, for people and records.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct DeviceReport {
    /// As it names itself.
    pub name: String,
    /// How burn drives it.
    pub runtime: String,
    /// The graphics API under it, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// The driver and its version, where the API says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// What it proves to have measured on it.
    pub kind: DeviceKind,
}

/// What stands behind a device. No answer confuses one with another.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DeviceKind {
    /// A GPU.
    Gpu,
    /// The processor of the host plays the device, and computes everything.
    Software,
    /// CUDA's own runtime on a driver that counts memory: there is no GPU, and nothing is computed.
    Counting,
}

impl DeviceKind {
    /// What is said of it wherever it is named; nothing of a GPU.
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
    /// Of a device that calls itself `called` and is driven as `name` says; `driver` is the
    /// version of its driver, where another than the graphics API knows it.
    pub(super) fn new(name: DeviceName, called: &str, driver: Option<String>) -> Self {
        let adapters = match name.driven.runtime() {
            Runtime::Cuda => Vec::new(),
            Runtime::Wgpu | Runtime::Vulkan => adapters(),
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

/// The adapters of the native graphics APIs; OpenGL's view of them only where there is no
/// other, as CubeCL chooses too (`AutoGraphicsApi::chain` of `cubecl-wgpu` 0.11.3).
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

/// Every device that this program can measure on. Each is opened for it.
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
    /// What `--device` calls it.
    pub device: String,
    /// What it is.
    #[serde(flatten)]
    pub report: DeviceReport,
}
