//! Whether a thread looks for something, in a world of exact time, and the occasions on which it looks again.
//!
//! A thread can find what another thread of its host has done, because both may share memory, and what one of
//! another host has done in two ways: by a call of the kernel, as on a socket, or by packets of pumice, of
//! which the library says to whom they go. So a packet between two of many hosts is an occasion for threads
//! of these two hosts alone. In a world without `--hosts` all processes are on one host.

use std::collections::BTreeMap;

use super::rows::SyscallClass;

/// A host of the world: 0 for processes that have entered none.
pub(crate) type HostNumber = u32;

/// Value of the word of the page for packets to no process, and for packets to more than one. Other values
/// are the number of a receiver, plus 1.
const TO_NONE: u64 = 0;
const TO_SEVERAL: u64 = u64::MAX;

/// The number of occasions so far.
#[derive(Debug, Default)]
pub(crate) struct Occasions {
    /// Occasions for all threads.
    everywhere: u64,
    /// Occasions for threads of each host, by its number.
    on_hosts: Vec<u64>,
    /// Occasions to look at the device of each process, by its order of birth.
    on_devices: BTreeMap<u32, u64>,
    /// The processes that receive packets, by the numbers that the library gives these. A number of 16 bits
    /// bounds the list, because programs may send any hint.
    receivers: BTreeMap<u16, Receiver>,
}

/// A process that receives packets: its host, and its order of birth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Receiver {
    pub(crate) host: HostNumber,
    pub(crate) process: u32,
}

impl Occasions {
    /// Returns the number of occasions for threads of a host.
    pub(crate) fn of(&self, host: HostNumber) -> u64 {
        self.everywhere + self.on_hosts.get(index_of(host)).copied().unwrap_or(0)
    }

    /// Notes an occasion for threads of one host.
    pub(crate) fn on_host(&mut self, host: HostNumber) {
        let index = index_of(host);
        if self.on_hosts.len() <= index {
            self.on_hosts.resize(index + 1, 0);
        }
        if let Some(count) = self.on_hosts.get_mut(index) {
            *count += 1;
        }
    }

    /// Notes an occasion for all threads.
    pub(crate) fn everywhere(&mut self) {
        self.everywhere += 1;
    }

    /// Returns the number of occasions to look at the device of a process.
    pub(crate) fn of_devices(&self, process: u32) -> u64 {
        self.everywhere + self.on_devices.get(&process).copied().unwrap_or(0)
    }

    /// Notes an occasion to look at the device of a process.
    pub(crate) fn on_devices(&mut self, process: u32) {
        *self.on_devices.entry(process).or_default() += 1;
    }

    /// Notes that a process receives the packets that are for a number.
    pub(crate) fn receives(&mut self, number: u64, receiver: Receiver) {
        if let Ok(number) = u16::try_from(number) {
            self.receivers.insert(number, receiver);
        }
    }

    /// Notes packets that a thread has handed over, as the page says it.
    pub(crate) fn handed_over(&mut self, word: u64) {
        let receiver = word.checked_sub(1).filter(|_| word != TO_SEVERAL);
        let receiver = receiver.and_then(|receiver| u16::try_from(receiver).ok());
        match receiver.and_then(|receiver| self.receivers.get(&receiver).copied()) {
            Some(Receiver { host, process }) => {
                self.on_host(host);
                self.on_devices(process);
            }
            None if word == TO_NONE => {}
            None => self.everywhere(),
        }
    }
}

/// Returns the index of a host. Programs may give any number: those above the largest are one host.
const fn index_of(host: HostNumber) -> usize {
    const LARGEST: HostNumber = 1 << 12;
    (if host < LARGEST { host } else { LARGEST }) as usize
}

/// Reports whether a call of this class may change what a thread of another host finds. Files are not meant:
/// a program that waits for one sleeps between two looks. Nor is a closed descriptor, which threads find when
/// they look again after some time: programs close too many.
pub(crate) const fn reaches_other_hosts(class: SyscallClass) -> bool {
    use SyscallClass::{
        Accepts, Connects, Exits, ExitsGroup, Kills, Listens, Reads, Receives, Sends, SendsFile, Splices,
        Writes,
    };
    matches!(class, Accepts | Connects | Listens | Exits | ExitsGroup | Kills)
        || matches!(class, Reads | Receives(_) | Sends(_) | SendsFile | Splices | Writes)
}

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
    fn a_packet_is_an_occasion_for_the_host_of_its_receiver() {
        let mut occasions = Occasions::default();
        occasions.receives(7, Receiver { host: 2, process: 5 });
        let counts = |occasions: &Occasions| [1, 2, 3].map(|host| occasions.of(host));
        let of_devices = |occasions: &Occasions| [4, 5].map(|process| occasions.of_devices(process));
        occasions.handed_over(TO_NONE);
        assert_eq!(counts(&occasions), [0, 0, 0]);
        occasions.handed_over(7 + 1);
        occasions.on_host(3);
        assert_eq!(counts(&occasions), [0, 1, 1]);
        assert_eq!(of_devices(&occasions), [0, 1]);
        // A receiver that is not known, and several of them.
        occasions.handed_over(8 + 1);
        occasions.handed_over(TO_SEVERAL);
        assert_eq!(counts(&occasions), [2, 3, 3]);
        assert_eq!(of_devices(&occasions), [2, 3]);
    }

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
