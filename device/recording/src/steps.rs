//! Counts the steps of the analysis in tests, which compare the work for twice as many messages. A clock
//! would measure the machine rather than the algorithm.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Adds `count` steps.
#[cfg(test)]
pub(crate) fn count_steps(count: usize) {
    STEPS.with(|steps| steps.set(steps.get() + count as u64));
}

/// Does nothing: only tests count steps.
#[cfg(not(test))]
#[inline]
pub(crate) const fn count_steps(_: usize) {}

/// Returns the number of steps that `work` took on this thread.
#[cfg(test)]
pub(crate) fn steps_of(work: impl FnOnce()) -> u64 {
    let before = STEPS.with(std::cell::Cell::get);
    work();
    STEPS.with(std::cell::Cell::get) - before
}
