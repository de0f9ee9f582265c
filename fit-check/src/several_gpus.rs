//! Jobs on several GPUs of a machine: how many there are, and what NCCL takes on each besides CubeCL's pools.

use estimator::{Bytes, Runtime};
use model_zoo::{Rank, Strategy};
use schemars::JsonSchema;
use serde::Serialize;

use crate::card::Card;
use crate::user_error::UserError;
use crate::values;

/// What NCCL takes of a GPU for one communicator, besides CubeCL's pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Nccl {
    /// At least.
    pub least_bytes: Bytes,
    /// At most.
    pub most_bytes: Bytes,
}

impl Nccl {
    /// What others measured: 484 MiB on an RTX 3090 (NVIDIA/nccl, pull request 2366), and 544 MB in a group of two and 688 MB in a
    /// larger one on four A100 with NVLink (NVIDIA/nccl, issue 964). It depends on channels, algorithm and topology (issue 986);
    /// one report has 1.6 GB (issue 864).
    pub const MEASURED: Self = Self {
        least_bytes: Bytes::mib(484),
        most_bytes: Bytes(688_000_000),
    };

    /// The range that `text`, a value of `--nccl`, means: one figure.
    fn typed(text: &str) -> Result<Self, UserError> {
        let bytes = values::memory(text)?;
        Ok(Self {
            least_bytes: bytes,
            most_bytes: bytes,
        })
    }
}

/// The GPUs of a job, all of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct GpuGroup {
    /// How many there are.
    pub count: usize,
    /// What NCCL takes for one communicator.
    pub nccl: Nccl,
}

impl GpuGroup {
    /// The number of communicators that CubeCL makes on a GPU, and never frees: one of all GPUs, and one with each GPU to which, or
    /// from which, the model was copied (`to_client_tensor` and `all_reduce` of `cubecl-runtime` 0.11.3, `src/client.rs`).
    pub fn communicators(&self, rank: Rank) -> u64 {
        match rank {
            Rank::First => self.count as u64,
            Rank::Other => 2,
        }
    }

    /// The bytes that NCCL takes at most and at least on such a GPU.
    pub fn nccl_on(&self, rank: Rank) -> Nccl {
        let communicators = self.communicators(rank);
        let all = |each: Bytes| Bytes(each.0 * communicators);
        Nccl {
            least_bytes: all(self.nccl.least_bytes),
            most_bytes: all(self.nccl.most_bytes),
        }
    }
}

/// The number of GPUs and the name of one that `typed`, a value of `--gpu`, means: `4x24GB`, `3090 x4`; `None` if it names one GPU.
pub fn counted(typed: &str) -> Option<(&str, &str)> {
    const TIMES: [char; 3] = ['x', 'X', '×'];
    let is_count =
        |text: &str| !text.is_empty() && text.chars().all(|digit| digit.is_ascii_digit());
    if let Some((before, count)) = typed.rsplit_once(TIMES) {
        let (count, name) = (count.trim(), before.trim());
        // An x within a name follows a letter: RTX.
        let is_times = before.ends_with(|last: char| last == ' ' || last.is_ascii_digit());
        if is_count(count) && is_times && !is_count(name) {
            return Some((count, name));
        }
    }
    let (count, name) = typed.split_once(TIMES)?;
    let (count, name) = (count.trim(), name.trim());
    (is_count(count) && !name.is_empty()).then_some((count, name))
}

/// The number of GPUs, from [`counted`] text.
///
/// # Errors
///
/// It is 0, or more than machines have.
pub fn count(text: &str) -> Result<usize, UserError> {
    /// Chosen: no machine has so many.
    const MOST: usize = 1024;
    match text.parse() {
        Ok(count @ 1..=MOST) => Ok(count),
        _ => Err(
            UserError::new(format!("--gpu cannot be {text} GPUs")).hint(format!(
                "the number before x is from 1 to {MOST}: --gpu 4x24GB"
            )),
        ),
    }
}

/// The cards of a job with this `strategy`: on several GPUs, with what NCCL takes at most; `nccl` is the value of `--nccl`.
///
/// # Errors
///
/// The strategy needs several GPUs and a card is one, or the other way round, or burn has no such strategy on `runtime`.
pub fn for_strategy(
    cards: Vec<Card>,
    strategy: Strategy,
    nccl: Option<&str>,
    runtime: Runtime,
) -> Result<Vec<Card>, UserError> {
    let Some(nccl) = nccl_of(strategy, nccl, runtime)? else {
        return match cards.iter().find(|card| card.count > 1) {
            None => Ok(cards),
            Some(card) => Err(
                UserError::new(format!("a job on {} needs a strategy", card.name()))
                    .hint("--strategy ddp trains a batch on each; without it, name one GPU"),
            ),
        };
    };
    if cards.is_empty() || cards.iter().any(|card| card.count < 2) {
        return Err(too_few());
    }
    let in_group = |card: Card| {
        let count = card.count;
        card.in_group(GpuGroup { count, nccl })
    };
    Ok(cards.into_iter().map(in_group).collect())
}

/// The GPUs of a machine for `gpus --fits`, which looks at each kind of card: two, or as many as `count` says; none if the strategy
/// is of one GPU.
///
/// # Errors
///
/// As for [`for_strategy`], and if `count` is no number of GPUs.
pub fn group_of(
    strategy: Strategy,
    count: Option<&str>,
    nccl: Option<&str>,
    runtime: Runtime,
) -> Result<Option<GpuGroup>, UserError> {
    let count = values::optional_count("--count", count)?;
    if count.is_some() && !matches!(strategy, Strategy::Ddp(_)) {
        return Err(UserError::new("--count is of several GPUs").hint("add --strategy ddp"));
    }
    match (nccl_of(strategy, nccl, runtime)?, count.unwrap_or(2)) {
        (None, _) => Ok(None),
        (Some(_), ..2) => Err(too_few()),
        (Some(nccl), count) => Ok(Some(GpuGroup { count, nccl })),
    }
}

/// What NCCL takes for a communicator of a job with this `strategy`; none if it is of one GPU. `nccl` is the value of `--nccl`.
fn nccl_of(
    strategy: Strategy,
    nccl: Option<&str>,
    runtime: Runtime,
) -> Result<Option<Nccl>, UserError> {
    let is_ddp = matches!(strategy, Strategy::Ddp(_));
    if !is_ddp && nccl.is_some() {
        return Err(UserError::new("--nccl is of several GPUs").hint("add --strategy ddp"));
    }
    if is_ddp && !runtime.reduces_between_cards() {
        return Err(UserError::new(format!(
            "burn has no data parallelism on {runtime}: it panics where GPUs would exchange gradients"
        ))
        .hint("--strategy ddp is for --runtime cuda"));
    }
    let nccl = is_ddp.then(|| nccl.map_or(Ok(Nccl::MEASURED), Nccl::typed));
    nccl.transpose()
}

fn too_few() -> UserError {
    UserError::new("--strategy ddp needs several GPUs")
        .hint("say how many: --gpu 4x24GB, --gpu 2xrtx-3090")
}

impl Card {
    /// The card, as many times as `group` says, with what NCCL takes at most.
    pub fn in_group(mut self, group: GpuGroup) -> Self {
        self.count = group.count;
        self.device.card.overhead += group.nccl_on(Rank::First).most_bytes;
        self.group = Some(group);
        self
    }
}

/// `card` with what NCCL takes at least; `None` if it is one GPU, or that is known.
pub fn with_least_nccl(card: &Card) -> Option<Card> {
    let on_first = card.group?.nccl_on(Rank::First);
    let more = on_first.most_bytes - on_first.least_bytes;
    (more > Bytes::ZERO).then(|| {
        let mut card = card.clone();
        card.device.card.overhead -= more;
        card
    })
}

/// The strategy that `typed`, the value of `--strategy`, names; that of one GPU if nothing was typed.
///
/// # Errors
///
/// It names none, or one that burn does not have or this program does not simulate.
pub fn strategy(typed: Option<&str>) -> Result<Strategy, UserError> {
    typed.map_or(Ok(Strategy::Single), named)
}

fn named(text: &str) -> Result<Strategy, UserError> {
    let invalid = |error: &str| {
        UserError::new(format!("--strategy {text}: {error}"))
            .hint("--strategy is single, learner or ddp; `fit-check run --gpu 4x24GB -- torchrun …` follows any strategy of PyTorch")
    };
    match text.to_lowercase().as_str() {
        "single" => Ok(Strategy::Single),
        "learner" => Ok(Strategy::Learner),
        "ddp" => Ok(Strategy::Ddp(Rank::First)),
        "main" => Err(invalid(
            "what burn reserves where it gathers gradients on one GPU depends on which GPU answers first, so this is not simulated",
        )),
        "sharded" => Err(invalid(
            "burn places each shard of the optimizer by a random number, so this is not simulated",
        )),
        "fsdp" | "fsdp2" | "zero" | "zero-1" | "zero-2" | "zero-3" | "tp" | "pp" | "tensor"
        | "pipeline" => Err(invalid("burn 0.22.1 has nothing of the kind")),
        _ => Err(UserError::invalid_value("--strategy", text)
            .hint("--strategy is single, learner or ddp")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_before_or_after_an_x() {
        assert_eq!(counted("4x24GB"), Some(("4", "24GB")));
        assert_eq!(counted("4 x RTX 3090"), Some(("4", "RTX 3090")));
        assert_eq!(counted("T4 x2"), Some(("2", "T4")));
        assert_eq!(counted("8xH100"), Some(("8", "H100")));
        assert_eq!(counted("0x3090"), Some(("0", "3090")));
        for one in ["rtx-3090", "24GB", "x", "4x", "xtx", "rx-7900-xtx"] {
            assert_eq!(counted(one), None, "{one}");
        }
        assert!(count("0").is_err() && count("9999").is_err());
    }

    /// With NCCL, GPU 0 of k has 1 + (k - 1) communicators, the others two: one of all, and one of each pair.
    #[test]
    fn gpu_0_has_a_communicator_with_each_other_gpu() {
        let group = GpuGroup {
            count: 4,
            nccl: Nccl::MEASURED,
        };
        let counts = [Rank::First, Rank::Other].map(|rank| group.communicators(rank));
        assert_eq!(counts, [4, 2]);
        assert_eq!(
            group.nccl_on(Rank::First).most_bytes,
            Bytes(4 * 688_000_000)
        );
    }

    #[test]
    fn a_strategy_that_burn_does_not_have_is_refused_by_name() {
        for text in ["fsdp", "main", "sharded", "zero-3", "pipeline", "dpp"] {
            let error = strategy(Some(text)).unwrap_err().to_string();
            assert!(error.contains("\nhint: "), "{error}");
        }
        assert_eq!(strategy(Some("DDP")).unwrap(), Strategy::Ddp(Rank::First));
    }
}
