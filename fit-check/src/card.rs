//! Cards, and the names and sizes by which the command line calls them.

use estimator::{Bytes, DeviceSpec, Gpu, Runtime, Tuning};
use strum::IntoEnumIterator;

use crate::local_gpu::{AUTO, LocalGpu};
use crate::several_gpus::{GpuGroup, count, counted};
use crate::user_error::{UserError, either};
use crate::values;

/// A card on which a job should fit.
#[derive(Clone, Debug)]
pub struct Card {
    /// Its entry in the catalogue; none if only a size was given.
    pub gpu: Option<&'static Gpu>,
    /// The simulated device; of several, the one that needs the most memory.
    pub device: DeviceSpec,
    /// How many there are.
    pub count: usize,
    /// How they share a job, if there are several.
    pub group: Option<GpuGroup>,
}

impl Card {
    /// `gpu`, driven by `runtime`, about which burn's tuner knows what `tuning` says.
    pub fn of(gpu: &'static Gpu, runtime: Runtime, tuning: Tuning) -> Self {
        Self {
            gpu: Some(gpu),
            ..Self::sized(gpu.spec(runtime).with_tuning(tuning))
        }
    }

    /// A card like `device`, of no name.
    pub fn sized(device: DeviceSpec) -> Self {
        Self {
            gpu: None,
            device,
            count: 1,
            group: None,
        }
    }

    /// Its name: `A10`, `4 x A10`, or `10.0 GiB of memory` if only a size was given.
    pub fn name(&self) -> String {
        let name = match self.gpu {
            Some(gpu) => gpu.name.clone(),
            None => format!("{} of memory", self.usable()),
        };
        match self.count {
            1 => name,
            count => format!("{count} x {name}"),
        }
    }

    /// The label of a narrow column; the size if only a size was given.
    pub fn label(&self) -> String {
        let label = match self.gpu {
            Some(gpu) => gpu.short_name().to_string(),
            None => self.usable().to_string(),
        };
        match self.count {
            1 => label,
            count => format!("{count} x {label}"),
        }
    }

    /// The usable memory of the card.
    pub fn usable(&self) -> Bytes {
        self.device.card.total.unwrap_or(Bytes(u64::MAX))
    }

    /// The memory that a process leaves to its job.
    pub fn available(&self) -> Bytes {
        self.device.available().unwrap_or(Bytes(u64::MAX))
    }

    /// `error` of a simulation on this card, with the card's name.
    pub fn error(&self, error: estimator::Error) -> UserError {
        UserError::from(error).about(format_args!("on {}", self.name()))
    }
}

/// The cards called `names`, or one card with the typed `memory`. burn's tuner knows what `tuning` says of them.
///
/// # Errors
///
/// A card is unknown or the runtime does not drive it, or both names and a memory were given.
pub fn cards(
    names: &[impl AsRef<str>],
    memory: Option<&str>,
    runtime: Runtime,
    tuning: Tuning,
) -> Result<Vec<Card>, UserError> {
    match (memory, names) {
        (Some(_), [_, ..]) => Err(
            UserError::new("--gpu and --memory exclude each other").hint(
                "--memory is all that the job may have; --gpu knows what a card keeps for itself",
            ),
        ),
        (Some(size), []) => {
            let memory = values::memory(size)?;
            let device = DeviceSpec::unlimited(runtime).with_memory(memory, Bytes::ZERO);
            let device = device.with_tuning(tuning);
            Ok(vec![Card::sized(device)])
        }
        (None, names) => names
            .iter()
            .map(|name| card(name.as_ref(), runtime, tuning))
            .collect(),
    }
}

/// The card of the catalogue that `name`, a value of `--gpu`, means.
///
/// # Errors
///
/// There is no such card, or the catalogue does not know the card of this machine.
pub fn gpu(name: &str) -> Result<&'static Gpu, UserError> {
    if name == AUTO {
        let local = LocalGpu::find()?;
        return local.known().ok_or_else(|| {
            UserError::new(format!("the catalogue does not have {}", local.name))
                .hint("`fit-check gpus` lists the cards")
        });
    }
    Gpu::find(name).map_err(|error| UserError::from(error).repeatable("--gpu", name))
}

/// Says on stderr which card each of `names` is, where that is not plain: values of `--gpu`. Names without a card are
/// left to the command.
pub fn announce<'a>(names: impl IntoIterator<Item = &'a str>) {
    for name in names {
        if let Some(note) = note(name) {
            anstream::eprintln!("note: {note}");
        }
    }
}

/// Which card `name` is, if it is a machine of a cloud, a name of several cards, or the card of this machine.
fn note(name: &str) -> Option<String> {
    let name = counted(name).map_or(name, |(_, name)| name);
    if name == AUTO {
        let local = LocalGpu::find().ok()?;
        return Some(format!(
            "the GPU of this machine with the least memory is {}, {} usable",
            local.name, local.usable
        ));
    }
    let named = Gpu::named(name).ok()?;
    let gpu = &named.gpu.name;
    if let Some(instance) = named.instance {
        let has = match instance.gpus {
            1 => format!("one {gpu}"),
            several => format!("{several} {gpu}, and this is about one"),
        };
        let (provider, source) = (&instance.provider, &instance.source);
        return Some(format!("{name} ({provider}) has {has}: {source}"));
    }
    let others = named.others.iter();
    let others: Vec<_> = others.map(|gpu| format!("--gpu {}", gpu.alias())).collect();
    (!others.is_empty()).then(|| {
        format!(
            "{name} is several cards, of which {gpu} has the least memory; {} is another",
            either(&others)
        )
    })
}

fn card(name: &str, runtime: Runtime, tuning: Tuning) -> Result<Card, UserError> {
    if let Some((text, name)) = counted(name) {
        let count = count(text)?;
        let card = card(name, runtime, tuning)?;
        return Ok(Card { count, ..card });
    }
    if name == AUTO {
        return Ok(LocalGpu::find()?.card(runtime, tuning));
    }
    let gpu = gpu(name)?;
    if !gpu.is_driven_by(runtime) {
        let driven = Runtime::iter().filter(|runtime| gpu.is_driven_by(*runtime));
        let driven: Vec<_> = driven.collect();
        return Err(
            UserError::new(format!("{} is not driven by {runtime}", gpu.name))
                .hint(format!("add --runtime {}", either(&driven))),
        );
    }
    Ok(Card::of(gpu, runtime, tuning))
}

#[cfg(test)]
mod tests {
    use strum::VariantNames;

    use super::*;
    use crate::values::choice;

    fn cards(gpu: &[&str], memory: Option<&str>, runtime: &str) -> Result<Vec<Card>, UserError> {
        let runtime = choice("--runtime", runtime, Runtime::VARIANTS)?;
        super::cards(gpu, memory, runtime, Tuning::Cold)
    }

    #[test]
    fn a_card_is_a_name_a_class_or_a_size() {
        let found = cards(&["rtx-3090", "24GB"], None, "cuda").unwrap();
        assert_eq!(found[0].label(), "RTX 3090");
        // The class means the card sold with it that has the least usable memory.
        assert!(found[1].usable() <= found[0].usable());
        assert!(
            found
                .iter()
                .all(|card| card.device.simulation.tuning == Tuning::Cold)
        );
        let sized = cards(&[], Some("10GB"), "wgpu").unwrap();
        assert_eq!(sized[0].available(), Bytes(10_000_000_000));
        assert_eq!(sized[0].device.runtime, Runtime::Wgpu);
        assert!(cards(&[], None, "cuda").unwrap().is_empty());
    }

    #[test]
    fn a_name_that_is_not_plain_is_explained() {
        for (name, said) in [
            (
                "RTX 6000",
                "--gpu rtx6000ada or --gpu rtxpro6000 is another",
            ),
            (
                "p4d.24xlarge",
                "p4d.24xlarge (AWS) has 8 A100 40GB, and this is about one: https://",
            ),
            ("g5.xlarge", "g5.xlarge (AWS) has one A10G: https://"),
        ] {
            let note = note(name).unwrap();
            assert!(note.contains(said), "{note}");
        }
        assert_eq!(
            (note("rtx-3090"), note("24GB"), note("rtx-9999")),
            (None, None, None)
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_hint() {
        for refused in [
            cards(&["l4"], Some("1GB"), "cuda"),
            cards(&["rtx-9999"], None, "cuda"),
            cards(&["l4"], None, "rocm"),
            cards(&[], Some("0GB"), "cuda"),
        ] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("\nhint: "), "{error}");
        }
        let list = cards(&["l4, a10,"], None, "cuda").unwrap_err().to_string();
        assert!(
            list.ends_with("hint: repeat --gpu: --gpu l4 --gpu a10"),
            "{list}"
        );
    }

    #[test]
    fn an_error_on_a_card_names_it_and_keeps_its_hint() {
        let card = cards(&["l4"], None, "cuda").unwrap().remove(0);
        let error = card.error(estimator::Error::NoKernel("no tensor cores".into()));
        let text = error.to_string();
        assert!(
            text.starts_with("error: on L4: burn has no kernel"),
            "{text}"
        );
        assert!(text.contains("\nhint: "), "{text}");
    }
}
