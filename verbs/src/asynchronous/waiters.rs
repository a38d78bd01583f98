//! Tasks that wait for something that another task may take on their behalf.

use std::task::{Context, Waker};

/// Maximum number of tasks that are stored; further ones are woken at once, and check again.
const MAX_WAITERS: usize = 1024;

/// The tasks.
#[derive(Debug, Default)]
pub(super) struct Waiters(Vec<Waker>);

impl Waiters {
    /// Adds the task.
    pub(super) fn add(&mut self, context: &Context<'_>) {
        let waker = context.waker();
        if self.0.iter().any(|known| known.will_wake(waker)) {
            return;
        }
        if self.0.len() >= MAX_WAITERS {
            self.wake();
        }
        self.0.push(waker.clone());
    }

    /// Wakes all tasks.
    pub(super) fn wake(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_is_stored_once_and_woken_once() {
        let counted = Arc::new(Counted::default());
        let waker = Waker::from(Arc::clone(&counted));
        let mut waiters = Waiters::default();
        for _ in 0..3 {
            waiters.add(&Context::from_waker(&waker));
        }
        waiters.wake();
        waiters.wake();
        assert_eq!(counted.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn of_many_tasks_a_bounded_number_is_stored() {
        let mut waiters = Waiters::default();
        let tasks: Vec<_> = (0..MAX_WAITERS + 7).map(|_| Arc::new(Counted::default())).collect();
        for task in &tasks {
            waiters.add(&Context::from_waker(&Waker::from(Arc::clone(task))));
        }
        assert_eq!(waiters.0.len(), 7);
        waiters.wake();
        assert!(tasks.iter().all(|task| task.0.load(Ordering::Relaxed) == 1));
    }
}
