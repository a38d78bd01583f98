//! What a check keeps of each queue.

use pumice_ground::number_map::NumberMap;

/// A queue, as the shared records name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Of {
    /// A completion queue, by its handle.
    Cq(u32),
    /// A queue pair, by its number.
    Qp(u32),
    /// A shared receive queue, by its handle.
    Srq(u32),
}

impl From<Of> for u64 {
    fn from(of: Of) -> u64 {
        match of {
            Of::Cq(handle) => handle.into(),
            Of::Qp(number) => 1 << 32 | u64::from(number),
            Of::Srq(handle) => 2 << 32 | u64::from(handle),
        }
    }
}

/// A record of a check for each queue. Ask only for queues that are known: the others are never forgotten.
#[derive(Debug, Default)]
pub(super) struct Kept<T>(NumberMap<Of, T>);

impl<T: Default> Kept<T> {
    /// What is kept of a queue; a new record if that is nothing.
    pub(super) fn of(&mut self, of: Of) -> &mut T {
        self.0.or_default(of)
    }

    /// A queue is gone or made anew; all of them if none is named.
    pub(super) fn forget(&mut self, of: Option<Of>) {
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
        let mut kept = Kept::<u32>::default();
        for of in [Of::Cq(1), Of::Qp(1)] {
            *kept.of(of) += 1;
        }
        kept.forget(Some(Of::Cq(1)));
        assert_eq!((*kept.of(Of::Cq(1)), *kept.of(Of::Qp(1))), (0, 1));
        kept.forget(None);
        assert_eq!(*kept.of(Of::Qp(1)), 0);
    }
}
