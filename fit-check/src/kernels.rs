//! Which cards are the same for a step.

use estimator::CardSpec;

/// `things` that have cards, those with the same kernels together, all in their order: on them a
/// step makes the same calls.
pub fn alike<T>(things: impl IntoIterator<Item = T>, card: impl Fn(&T) -> CardSpec) -> Vec<Vec<T>> {
    together(things, |thing| card(thing).kernels())
}

/// `things` that have cards, those together whose cards have nothing different but their name, all
/// in their order: what is found on one is so on the others.
pub fn same<T>(things: impl IntoIterator<Item = T>, card: impl Fn(&T) -> CardSpec) -> Vec<Vec<T>> {
    together(things, |thing| CardSpec {
        name: String::new(),
        ..card(thing)
    })
}

fn together<T>(
    things: impl IntoIterator<Item = T>,
    kind_of: impl Fn(&T) -> CardSpec,
) -> Vec<Vec<T>> {
    let mut kinds: Vec<(CardSpec, Vec<T>)> = Vec::new();
    for thing in things {
        let kind = kind_of(&thing);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, things)) => things.push(thing),
            None => kinds.push((kind, vec![thing])),
        }
    }
    kinds.into_iter().map(|(_, things)| things).collect()
}

#[cfg(test)]
mod tests {
    use estimator::{Bytes, CardSpec, Gpu, Runtime};

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

    #[test]
    fn a_card_by_another_name_is_the_same() {
        let card = |name: &str, mib| CardSpec {
            name: name.into(),
            ..CardSpec::endless(Runtime::Cuda).with_memory(Bytes::mib(mib), Bytes::ZERO)
        };
        let cards = [card("a", 24220), card("b", 24217), card("c", 24220)];
        assert_eq!(
            super::same(0..3, |at| cards[*at].clone()),
            [vec![0, 2], vec![1]]
        );
    }
}
