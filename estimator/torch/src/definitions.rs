//! How public packages define the networks of the zoo (`zoo/definitions.py`), for steps that were not recorded.

use std::collections::BTreeMap;

use serde_json::Value;

/// The networks, in the form of a `config.json` of transformers or timm, or as `{"torchvision": NAME}`.
const TEXT: &str = include_str!("../data/definitions.json");

/// The definition of the network `name`, as JSON; none if it is a program of its own, or in no public package.
pub fn find(name: &str) -> Option<String> {
    let mut all: BTreeMap<String, Value> = serde_json::from_str(TEXT).ok()?;
    Some(all.remove(name)?.to_string())
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
