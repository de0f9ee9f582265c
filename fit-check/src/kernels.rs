//! Which cards run a step with the same kernels, and so make the same calls in it.

use estimator::CardSpec;

/// `things` that have cards, those with the same kernels together, all in their order.
pub fn alike<T>(things: impl IntoIterator<Item = T>, card: impl Fn(&T) -> CardSpec) -> Vec<Vec<T>> {
    let mut kinds: Vec<(CardSpec, Vec<T>)> = Vec::new();
    for thing in things {
        let kernels = card(&thing).kernels();
        match kinds.iter_mut().find(|(known, _)| *known == kernels) {
            Some((_, kind)) => kind.push(thing),
            None => kinds.push((kernels, vec![thing])),
        }
    }
    kinds.into_iter().map(|(_, kind)| kind).collect()
}

#[cfg(test)]
mod tests {
    use estimator::{Gpu, Runtime};

    use crate::ask::Card;

    #[test]
    fn a_generation_has_the_same_kernels_whatever_its_memory() {
        // Compute capabilities 8.6, 7.5, 8.6, 7.5: estimator/data/gpus.csv.
        let names = ["rtx-3090", "rtx-2080", "rtx-3060", "rtx-2080-ti"];
        let kinds = super::alike(names, |name| {
            let gpu = Gpu::find(name).expect("in the catalogue");
            Card::of(gpu, Runtime::Cuda).spec
        });
        assert_eq!(
            kinds,
            [["rtx-3090", "rtx-3060"], ["rtx-2080", "rtx-2080-ti"]]
        );
    }
}
