//! Whether a thread looks for something, in a world of exact time.

/// Number of rounds of looks of a parked thread on each occasion, if the library does not tell what it does
/// itself: the second one finds what the first looks of other threads have changed.
const UNTOLD_ROUNDS: u32 = 2;
/// Maximum number of looks of a round.
const MAX_ROUND: u32 = 16;

/// What a thread looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LookedFor {
    /// A number that is the same for the same thing.
    pub(crate) what: u64,
    /// The library tells when a look changes something.
    pub(crate) is_told: bool,
    /// The thread is one of the library, and looks at a device alone.
    pub(crate) of_devices: bool,
}

/// A round of looks: a thread may look for several things in turn, as for completions of several queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// What the first look is for.
    first: u64,
    /// Number of looks since that one, with it; 0 before it.
    since: u32,
    /// Number of looks of the round before.
    length: u32,
    /// The library tells when a look changes something.
    is_told: bool,
}

impl Round {
    /// Adds a look in vain. `is_new`: the thread has done something else before.
    pub(crate) const fn add(self, looked_for: LookedFor, is_new: bool) -> Round {
        let LookedFor { what, is_told, .. } = looked_for;
        let Round { first, since, length, .. } = self;
        if is_new || since == 0 || since >= MAX_ROUND {
            return Round { first: what, since: 1, length, is_told };
        }
        let is_told = is_told && self.is_told;
        if first == what {
            return Round { first, since: 1, length: since, is_told };
        }
        Round { first, since: since + 1, length, is_told }
    }

    /// Returns how often a thread looks on each occasion.
    pub(crate) const fn looks(self) -> u32 {
        let rounds = if self.is_told { 1 } else { UNTOLD_ROUNDS };
        if self.length == 0 { rounds } else { rounds * self.length }
    }
}

/// The state of a thread that may look for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// The thread does something else.
    Active,
    /// The thread has looked in vain, and looks again later.
    Parked(Parked),
    /// The thread looks again.
    Looking(Parked),
}

/// A thread that has looked in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parked {
    /// Time at which what it looks for can be there, in ns of the world.
    pub(crate) until_ns: u64,
    /// Time at which it looks in any case, in ns of the world.
    pub(crate) latest_ns: u64,
    /// Number of the occasion on which it last looked, as its host counts them.
    pub(crate) occasion: u64,
    /// Number of looks on that occasion.
    pub(crate) looks: u32,
    /// The thread looks at the device of its process alone, and its occasions are those.
    pub(crate) of_devices: bool,
    /// The looks drive the device of the process.
    pub(crate) drives: bool,
}

impl Parked {
    /// Returns the number of looks on this occasion so far.
    pub(crate) const fn looks_so_far(&self, occasion: u64) -> u32 {
        if self.occasion == occasion { self.looks } else { 0 }
    }

    pub(crate) const fn looked_on(self, occasion: u64) -> Parked {
        Parked { occasion, looks: self.looks_so_far(occasion) + 1, ..self }
    }

    /// Reports whether the thread looks because it is this time.
    pub(crate) const fn looks_by(&self, now_ns: u64) -> bool {
        self.until_ns <= now_ns || self.latest_ns <= now_ns
    }
}

/// What is known of the device of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeviceLooks {
    /// Number of the device, once a thread of the library has looked.
    device: Option<u64>,
    /// The process has several devices, and a look at one says nothing of the others.
    has_several: bool,
    /// Time at which the device has something to do, as the latest hint said, in ns of the world.
    pub(crate) due_ns: u64,
    /// Number of the occasion up to which a thread has looked.
    pub(crate) looked: u64,
}

impl DeviceLooks {
    /// Notes that a thread of the library looks at this device. Returns whether it is the only one.
    pub(crate) fn looks_at(&mut self, device: u64) -> bool {
        self.has_several |= *self.device.get_or_insert(device) != device;
        !self.has_several
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_count_for_each_occasion() {
        let parked =
            Parked { until_ns: 9, latest_ns: 20, occasion: 3, looks: 1, of_devices: false, drives: false };
        assert_eq!((parked.looks_so_far(3), parked.looks_so_far(4)), (1, 0));
        let again = parked.looked_on(3);
        assert_eq!((again.looks_so_far(3), again.looked_on(4).looks_so_far(4)), (2, 1));
    }

    #[test]
    fn a_thread_looks_for_each_thing_once_or_twice() {
        for (is_told, rounds) in [(true, 1), (false, 2)] {
            let mut round = Round::default();
            let mut add = |what, is_new| {
                round = round.add(LookedFor { what, is_told, of_devices: false }, is_new);
                round.looks() / rounds
            };
            assert_eq!([add(7, true), add(7, false)], [1, 1]);
            // Three things in turn.
            assert_eq!([add(8, false), add(9, false), add(7, false), add(8, false)], [1, 1, 3, 3]);
            // Afterwards the thread does something, and begins in the middle of a round.
            assert_eq!([add(9, true), add(7, false), add(8, false), add(9, false)], [3, 3, 3, 3]);
            assert_eq!([add(9, false)], [1]);
        }
    }

    #[test]
    fn a_parked_thread_looks_at_its_time_and_after_the_longest_one() {
        let parked =
            Parked { until_ns: 9, latest_ns: 20, occasion: 3, looks: 1, of_devices: false, drives: false };
        assert!(!parked.looks_by(8) && parked.looks_by(9));
        let never = Parked { until_ns: u64::MAX, ..parked };
        assert!(!never.looks_by(19) && never.looks_by(20));
    }

    #[test]
    fn a_process_with_a_second_device_has_several_from_then_on() {
        let mut looks = DeviceLooks::default();
        assert!(looks.looks_at(7) && looks.looks_at(7));
        assert!(!looks.looks_at(8) && !looks.looks_at(7));
    }
}
