//! How public packages define the networks of the zoo (`zoo/definitions.py`), for steps that were not recorded.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

/// The networks, in the form of a `config.json` of transformers or timm, or as `{"torchvision": NAME}`.
static ALL: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../data/definitions.json")).unwrap_or_default()
});

/// The definition of the network `name`, as JSON; none if it is a program of its own, or in no public package.
pub fn find(name: &str) -> Option<String> {
    Some(ALL.get(name)?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept;

    /// A recorded network without one is a program: `nn.Transformer` has no vocabulary of its own.
    #[test]
    fn what_was_recorded_is_defined() {
        let without = kept::names().filter(|name| find(name).is_none());
        assert_eq!(
            without.collect::<Vec<_>>(),
            ["transformer-base", "transformer-big"]
        );
        assert!(find("resnet-50").is_some_and(|text| text.contains("\"resnet50\"")));
        assert!(find("no-such-network").is_none());
    }
}
