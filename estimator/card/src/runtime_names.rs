//! The names by which burn's tuners know a card, and CubeCL the throughput that it measured.
//!
//! Both keep their results by the card's name for as long as the process lives. A card takes a new name when
//! burn is to tune another program on it, when another candidate is to be the fastest, or when it becomes a card with other
//! kernels. With an earlier name, the results of that time are known again.

use std::sync::{Mutex, PoisonError};

use crate::runtime::Runtime;

/// The name with index `nth` of a card of this runtime. Index 0 is the name of the real runtime.
pub(crate) fn of(runtime: Runtime, nth: usize) -> &'static str {
    let real = runtime.rules().name();
    if nth == 0 {
        return real;
    }
    /// Each name is created once and leaked, since CubeCL wants static strings.
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
