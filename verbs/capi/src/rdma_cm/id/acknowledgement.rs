//! Threads that have fetched events: `rdma_destroy_id` waits for the events that other threads have not
//! acknowledged yet, and a channel is not destroyed while a thread sleeps in it.

use std::time::{Duration, Instant};

use pumice_device::ground::awaited::Awaited;

use crate::ground::process::{Thread, is_alive, own_thread};

/// Events of an identifier that were fetched and not acknowledged yet, by the threads that fetched them.
#[derive(Default)]
pub(crate) struct Unacknowledged {
    fetched_by: Awaited<Vec<Thread>>,
}

impl Unacknowledged {
    /// How long `rdma_destroy_id` waits. rdma-core waits for ever, but not every program acknowledges what it
    /// has fetched.
    const TIMEOUT: Duration = Duration::from_secs(1);

    pub(crate) fn fetched(&self, by: Thread) {
        self.fetched_by.change(|threads| threads.push(by));
    }

    pub(crate) fn acknowledged(&self, fetched_by: Thread) {
        self.fetched_by.change(|threads| {
            if let Some(index) = threads.iter().position(|thread| *thread == fetched_by) {
                threads.swap_remove(index);
            }
        });
    }

    /// Waits until all is acknowledged that other threads have fetched. The calling thread cannot acknowledge
    /// its own events meanwhile.
    pub(crate) fn wait_for_others(&self) {
        let own = own_thread();
        self.fetched_by.wait_for(Unacknowledged::TIMEOUT, |threads| {
            threads.iter().all(|thread| *thread == own || !is_alive(*thread))
        });
    }
}

/// The thread that fetches a channel's events.
#[derive(Default)]
pub(crate) struct Reader {
    state: Awaited<Reading>,
}

#[derive(Default, Clone, Copy)]
struct Reading {
    thread: Option<Thread>,
    /// It waits in the channel.
    waits: bool,
}

impl Reader {
    /// How long a thread that has just handled an event may take until it waits for the next.
    const TIMEOUT: Duration = Duration::from_millis(50);

    /// The calling thread begins to wait, or returns to the program.
    pub(crate) fn is_at(&self, waits: bool) {
        self.state.change(|state| *state = Reading { thread: Some(own_thread()), waits });
    }

    /// Whether another thread waits in the channel: one that fetched an event is about to come back.
    pub(crate) fn stays(&self) -> bool {
        let begun = Instant::now();
        let reader = self.state.look(|state| state.thread);
        let Some(thread) = reader.filter(|thread| *thread != own_thread() && is_alive(*thread)) else {
            return false;
        };
        let left = Reader::TIMEOUT.saturating_sub(begun.elapsed());
        self.state.wait_for(left, |state| state.waits) && is_alive(thread)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn own_events_are_not_waited_for_and_those_of_others_are() {
        let unacknowledged = Arc::new(Unacknowledged::default());
        unacknowledged.fetched(own_thread());
        unacknowledged.wait_for_others();
        let (fetched, was_fetched) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel();
        let other = thread::spawn({
            let unacknowledged = Arc::clone(&unacknowledged);
            move || {
                unacknowledged.fetched(own_thread());
                fetched.send(()).unwrap();
                may_go_on.recv().unwrap();
                unacknowledged.acknowledged(own_thread());
            }
        });
        was_fetched.recv().unwrap();
        go_on.send(()).unwrap();
        unacknowledged.wait_for_others();
        assert_eq!(unacknowledged.fetched_by.look(Vec::len), 1, "the own one");
        other.join().unwrap();
        // A thread that is gone acknowledges nothing any more.
        unacknowledged.fetched(Thread::MAX);
        unacknowledged.wait_for_others();
    }

    #[test]
    fn a_reader_stays_while_it_waits_and_lives() {
        let reader = Arc::new(Reader::default());
        assert!(!reader.stays());
        reader.is_at(true);
        assert!(!reader.stays(), "one that destroys its channel does not wait in it");
        let (end, ended) = mpsc::channel::<()>();
        let (waits, came) = mpsc::channel();
        let other = thread::spawn({
            let reader = Arc::clone(&reader);
            move || {
                reader.is_at(true);
                waits.send(()).unwrap();
                let _ = ended.recv();
            }
        });
        came.recv().unwrap();
        assert!(reader.stays());
        drop(end);
        other.join().unwrap();
        // Joined means that its memory is free; the kernel forgets it a moment later.
        let begun = Instant::now();
        while reader.stays() {
            assert!(begun.elapsed() < Duration::from_secs(10), "it has ended");
        }
    }
}
