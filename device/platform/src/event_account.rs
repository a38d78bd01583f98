//! The account of an object's events that the application has got and not yet acknowledged.

use std::time::Duration;

use crate::awaited::Awaited;

/// The number of events of one object that were delivered and not acknowledged: the object must not vanish
/// under an application that still uses such an event.
#[derive(Debug, Default)]
pub struct EventAccount {
    unacked: Awaited<u64>,
}

impl EventAccount {
    /// Creates an account with nothing delivered.
    pub fn new() -> EventAccount {
        EventAccount::default()
    }

    /// Acknowledges `count` events. More than were delivered is the same as all.
    pub fn ack(&self, count: u64) {
        self.unacked.change(|unacked| *unacked = unacked.saturating_sub(count));
    }

    /// Returns the number of events delivered and not acknowledged.
    pub fn unacked(&self) -> u64 {
        self.unacked.look(|unacked| *unacked)
    }

    /// Blocks until every delivered event is acknowledged. Do not hold the engine's lock.
    pub fn wait_all_acked(&self) {
        //= man:ibv_get_cq_event
        //| Every event that was taken has to be acknowledged before its object goes.
        self.unacked.wait(|unacked| *unacked == 0);
    }

    /// Blocks until every delivered event is acknowledged, but no longer than `patience`. Returns true if
    /// they are.
    pub fn wait_all_acked_for(&self, patience: Duration) -> bool {
        self.unacked.wait_for(patience, |unacked| *unacked == 0)
    }

    /// Counts an event that is being handed to the application.
    pub fn delivered(&self) {
        self.unacked.change(|unacked| *unacked += 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn waiting_ends_with_the_last_acknowledgement() {
        let account = Arc::new(EventAccount::new());
        account.wait_all_acked();
        account.delivered();
        account.delivered();
        let (done, finished) = mpsc::channel();
        let waiter = std::thread::spawn({
            let account = Arc::clone(&account);
            move || {
                account.wait_all_acked();
                done.send(account.unacked()).unwrap();
            }
        });
        account.ack(1);
        // The waiter cannot be done: one event is open.
        assert!(finished.try_recv().is_err());
        assert_eq!(account.unacked(), 1);
        account.ack(1);
        assert_eq!(finished.recv().unwrap(), 0);
        waiter.join().unwrap();
    }

    #[test]
    fn too_many_acknowledgements_are_harmless() {
        let account = EventAccount::new();
        account.delivered();
        account.ack(5);
        assert_eq!(account.unacked(), 0);
        account.delivered();
        assert_eq!(account.unacked(), 1);
    }
}
