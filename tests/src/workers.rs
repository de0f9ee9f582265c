//! Threads that share the items of a list.

use std::sync::Mutex;

/// Does `work` with each of `items`, on so many `workers` at once. After an error a worker takes no more items.
///
/// # Errors
///
/// The first error of the first worker that had one.
pub fn share<T>(
    workers: usize,
    items: impl IntoIterator<Item = T, IntoIter: Send>,
    work: impl Fn(T) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    let items = Mutex::new(items.into_iter());
    let next = || items.lock().expect("no iterator panics").next();
    let worker = || {
        while let Some(item) = next() {
            work(item)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let mut ended = workers.into_iter().map(|worker| worker.join());
        ended.try_for_each(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
