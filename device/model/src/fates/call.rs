//! The identity of a call, and what happens to it.

use std::hash::Hasher as _;

use fnv::FnvHasher;
use pumice_platform::random::Random;
use pumice_transport::types::QpState;

use crate::fates::incident::Incident;

/// The text that reports have in place of a call's name where an incident happened at a time. The ordinal is
/// then the time that had passed, in ns.
pub const TIME: &str = "time";

/// The identity of a call in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallKey<'a> {
    /// The name of the call.
    pub call: &'a str,
    /// The ordinal of the call among those of this name in this process, from 1.
    pub ordinal: u64,
    /// The ordinal of the call's queue pair, from 0, if it is a call on one.
    pub qp: Option<u32>,
    /// The state to which the call moves its queue pair, if it is such a call.
    pub to: Option<QpState>,
}

/// The fate of a call: what all rules together do to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallFate {
    /// The errno with which the call fails instead of being carried out.
    pub errno: Option<i32>,
    /// Additional time that the call takes, in ns.
    pub delay_ns: u64,
    /// The incident of the device after the call has returned.
    pub incident: Option<Incident>,
}

impl CallFate {
    /// Reports whether nothing happens to the call.
    pub fn is_ordinary(&self) -> bool {
        *self == CallFate::default()
    }
}

impl CallKey<'_> {
    /// Returns the random numbers of a rule for this call: a function of the seed, the rule's name, the
    /// process and the call.
    pub fn draw(&self, seed: u64, rule: &str, tag: &str) -> Random {
        let mut hasher = FnvHasher::default();
        for text in [rule, tag, self.call] {
            hasher.write(text.as_bytes());
            // The byte 0xff is in no UTF-8 text, so it separates.
            hasher.write(&[0xff]);
        }
        for number in [self.ordinal, seed] {
            hasher.write(&number.to_le_bytes());
        }
        Random::new(hasher.finish())
    }
}
