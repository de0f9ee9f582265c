//! The same work on many things, on every core.

use std::sync::Mutex;

/// `work` on each of `items`, in their order.
pub fn each<I, R: Send>(items: I, work: impl Fn(I::Item) -> R + Sync) -> Vec<R>
where
    I: IntoIterator<IntoIter: ExactSizeIterator + Send>,
{
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let items = items.into_iter();
    let count = items.len();
    let items = Mutex::new(items.enumerate());
    let done = Mutex::new(Vec::with_capacity(count));
    let next = || items.lock().expect("no iterator panicked").next();
    std::thread::scope(|scope| {
        for _ in 0..cores.min(count) {
            scope.spawn(|| {
                while let Some((index, item)) = next() {
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
        assert_eq!(super::each(items.clone(), |item| item), items);
    }
}
