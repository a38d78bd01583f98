//! Records that a check has for each queue.

use pumice_platform::number_map::NumberMap;

/// The name of a queue in the shared records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum QueueName {
    /// A completion queue, by its handle.
    Cq(u32),
    /// A queue pair, by its number.
    Qp(u32),
    /// A shared receive queue, by its handle.
    Srq(u32),
}

impl From<QueueName> for u64 {
    fn from(of: QueueName) -> u64 {
        match of {
            QueueName::Cq(handle) => handle.into(),
            QueueName::Qp(number) => 1 << 32 | u64::from(number),
            QueueName::Srq(handle) => 2 << 32 | u64::from(handle),
        }
    }
}

/// The records of a check, one for each queue. Ask only for queues that are known: the records of others are
/// never removed.
#[derive(Debug, Default)]
pub(super) struct PerQueue<T>(NumberMap<QueueName, T>);

impl<T: Default> PerQueue<T> {
    /// Returns the record of a queue, a new one if there was none.
    pub(super) fn of(&mut self, of: QueueName) -> &mut T {
        self.0.or_default(of)
    }

    /// Returns the record of a queue, if there is one.
    pub(super) fn get(&self, of: QueueName) -> Option<&T> {
        self.0.get(&of)
    }

    /// Removes the record of a queue that was destroyed or created again; all records if none is named.
    pub(super) fn forget(&mut self, of: Option<QueueName>) {
        match of {
            Some(of) => drop(self.0.remove(&of)),
            None => self.0.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_begin_anew_with_their_queues() {
        let mut per_queue = PerQueue::<u32>::default();
        for of in [QueueName::Cq(1), QueueName::Qp(1)] {
            *per_queue.of(of) += 1;
        }
        per_queue.forget(Some(QueueName::Cq(1)));
        assert_eq!((*per_queue.of(QueueName::Cq(1)), *per_queue.of(QueueName::Qp(1))), (0, 1));
        per_queue.forget(None);
        assert_eq!(*per_queue.of(QueueName::Qp(1)), 0);
    }
}
