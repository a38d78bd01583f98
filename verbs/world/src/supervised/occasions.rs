//! The occasions on which threads that have looked in vain look again, in a world of exact time.
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
}
