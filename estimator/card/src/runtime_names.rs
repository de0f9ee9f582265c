//! The names under which burn's tuners, and CubeCL with the peaks that it measured, know a card.
//!
//! They keep what they found out under a card's name for as long as the process lives. A card on which
//! another program is to be tuned, or another candidate is to be the fastest, takes a name that it
//! never had; with a name that it had before, what was found out then is known again.

use std::sync::{Mutex, PoisonError};

use crate::runtime::Runtime;

/// The name of a card of this runtime, the `nth` that it takes. The first is that of the real runtime.
pub(crate) fn of(runtime: Runtime, nth: usize) -> &'static str {
    let real = runtime.rules().name();
    if nth == 0 {
        return real;
    }
    /// Each is made once, and stays: CubeCL wants names that do.
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let name = format!("{real}, {nth}");
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.iter().find(|known| **known == name) {
        return known;
    }
    let made: &'static str = Box::leak(name.into_boxed_str());
    names.push(made);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_once() {
        assert_eq!(of(Runtime::Cuda, 0), "cuda");
        assert_ne!(of(Runtime::Cuda, 1), of(Runtime::Cuda, 2));
        assert!(std::ptr::eq(of(Runtime::Wgpu, 3), of(Runtime::Wgpu, 3)));
    }
}
