//! The same work on many things, on every core.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `work` on each of `items`, in their order.
pub fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    std::thread::scope(|scope| {
        for _ in 0..cores.min(items.len()) {
            scope.spawn(|| {
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(item) = items.get(index)
                {
                    let result = work(item);
                    done.lock().expect("no work panicked").push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no work panicked");
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(super::each(&items, |item| item * 2)[..3], [0, 2, 4]);
        assert_eq!(super::each(&items, |item| *item), items);
    }
}
