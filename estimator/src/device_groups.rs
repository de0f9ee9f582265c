//! Groups devices that are the same for a step.

use crate::card::DeviceSpec;

/// Groups `items` by the kernels of their devices, in their order: a step makes the same calls on all devices
/// of a group.
pub fn group_by_kernels<T>(
    items: impl IntoIterator<Item = T>,
    device: impl Fn(&T) -> DeviceSpec,
) -> Vec<Vec<T>> {
    group_by_key(items, |item| device(item).kernel_group())
}

/// Groups `items` whose devices differ in nothing but their name, in their order: a result for one device
/// holds for the others of its group.
pub fn group_identical<T>(
    items: impl IntoIterator<Item = T>,
    device: impl Fn(&T) -> DeviceSpec,
) -> Vec<Vec<T>> {
    group_by_key(items, |item| {
        let mut nameless = device(item);
        nameless.card.name.clear();
        nameless
    })
}

fn group_by_key<T, K: PartialEq>(
    items: impl IntoIterator<Item = T>,
    key_of: impl Fn(&T) -> K,
) -> Vec<Vec<T>> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key_of(&item);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, items)) => items.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups.into_iter().map(|(_, items)| items).collect()
}

#[cfg(test)]
mod tests {
    use crate::{DeviceSpec, Gpu, Runtime};
    use recording::Bytes;

    #[test]
    fn a_generation_has_the_same_kernels_whatever_its_memory() {
        // Compute capabilities 8.6, 7.5, 8.6, 7.5: estimator/data/gpus.csv.
        let names = ["rtx-3090", "rtx-2080", "rtx-3060", "rtx-2080-ti"];
        assert_eq!(
            by_kernels(names),
            [["rtx-3090", "rtx-3060"], ["rtx-2080", "rtx-2080-ti"]]
        );
    }

    /// `cubecl-cuda` 0.11.3, `src/runtime.rs`, registers features from compute capabilities 6.0, 7.0 and 7.5 on: a P100 has 6.0,
    /// a GTX 1080 6.1, a GTX 980 5.2.
    #[test]
    fn generations_with_the_same_features_have_the_same_kernels() {
        assert_eq!(
            by_kernels(["p100", "gtx-1080", "gtx-980"]),
            [vec!["p100", "gtx-1080"], vec!["gtx-980"]]
        );
    }

    fn by_kernels<const N: usize>(names: [&'static str; N]) -> Vec<Vec<&'static str>> {
        super::group_by_kernels(names, |name| {
            let gpu = Gpu::find(name).expect("in the catalogue");
            gpu.spec(Runtime::Cuda)
        })
    }

    #[test]
    fn a_card_by_another_name_is_the_same() {
        let card = |name: &str, mib| {
            let unlimited = DeviceSpec::unlimited(Runtime::Cuda);
            let mut spec = unlimited.with_memory(Bytes::mib(mib), Bytes::ZERO);
            spec.card.name = name.into();
            spec
        };
        let cards = [card("a", 24220), card("b", 24217), card("c", 24220)];
        assert_eq!(
            super::group_identical(0..3, |at| cards[*at].clone()),
            [vec![0, 2], vec![1]]
        );
    }
}
