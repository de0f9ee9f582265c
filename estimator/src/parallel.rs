//! Runs the same work on many items, on every core.

use std::cell::Cell;
use std::sync::Mutex;

thread_local! {
    /// Whether this thread belongs to a [`parallel_map`] that occupies every core.
    static WORKS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` on each of `items` and returns the results in their order. A nested call runs on the same
/// thread, if the outer one occupies every core.
pub fn parallel_map<I, R: Send>(items: I, work: impl Fn(I::Item) -> R + Sync) -> Vec<R>
where
    I: IntoIterator<IntoIter: ExactSizeIterator + Send>,
{
    let items = items.into_iter();
    if every_core_works() {
        return items.map(work).collect();
    }
    let count = items.len();
    let cores = cores();
    let workers = cores.min(count);
    let items = Mutex::new(items.enumerate());
    let done = Mutex::new(Vec::with_capacity(count));
    let next = || items.lock().expect("no iterator panicked").next();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                WORKS.set(workers == cores);
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

/// The first result that `work` has for one of `items`, in their order. As many of them are tried at a time as there are
/// cores, so `work` may also run for some after that one.
pub fn parallel_find_map<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> Option<R> + Sync,
) -> Option<R> {
    let mut items = items.into_iter();
    if every_core_works() {
        return items.find_map(work);
    }
    loop {
        let tried: Vec<T> = items.by_ref().take(cores()).collect();
        if tried.is_empty() {
            return None;
        }
        let found = parallel_map(tried, &work).into_iter().flatten().next();
        if found.is_some() {
            return found;
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether this thread works for a [`parallel_map`] that occupies every core.
pub fn every_core_works() -> bool {
    WORKS.get()
}

/// Runs `work` with every [`parallel_map`] within it on this thread alone, for a process that shares the cores
/// with others like it.
pub fn on_this_thread<R>(work: impl FnOnce() -> R) -> R {
    let before = WORKS.replace(true);
    let result = work();
    WORKS.set(before);
    result
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(super::parallel_map(&items, |item| item * 2)[..3], [0, 2, 4]);
        assert_eq!(super::parallel_map(items.clone(), |item| item), items);
    }

    #[test]
    fn the_first_result_is_found_as_without_threads() {
        for first in 0..20 {
            let square = |item: u32| (item >= first).then_some(item * item);
            assert_eq!(
                super::parallel_find_map(0..10, square),
                (0..10).find_map(square)
            );
        }
    }

    #[test]
    fn work_can_be_kept_on_its_thread() {
        let threads =
            super::on_this_thread(|| super::parallel_map(0..8, |_| std::thread::current().id()));
        assert_eq!(threads, [std::thread::current().id(); 8]);
        assert!(!super::every_core_works());
    }

    #[test]
    fn work_within_work_is_done_by_the_same_thread() {
        let threads = super::parallel_map(0..super::cores(), |_| {
            let within = super::parallel_map(0..8, |_| std::thread::current().id());
            (std::thread::current().id(), within)
        });
        for (thread, within) in threads {
            assert_eq!(within, [thread; 8]);
        }
    }
}
