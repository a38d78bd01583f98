//! Which call it is, and what happens to it.

use std::hash::Hasher as _;

use fnv::FnvHasher;
use pumice_ground::random::Random;

use crate::incident::Incident;

/// What reports have in place of a call's name where something happened at a time. The ordinal is the time
/// that had passed, in ns.
pub(crate) const TIME: &str = "time";

/// Which call of a process it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallKey<'a> {
    /// Its name.
    pub call: &'a str,
    /// Its ordinal among the calls of this name in this process, from 1.
    pub ordinal: u64,
    /// The ordinal of its queue pair, from 0, if it is a call on one.
    pub qp: Option<u32>,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallFate {
    /// It does nothing, and fails with this.
    pub errno: Option<i32>,
    /// It takes so much longer.
    pub delay_ns: u64,
    /// This happens to the device when it has returned.
    pub incident: Option<Incident>,
}

impl CallFate {
    /// Whether nothing happens.
    pub fn is_ordinary(&self) -> bool {
        *self == CallFate::default()
    }
}

impl CallKey<'_> {
    /// What a rule draws for this call: a function of the seed, the rule's name, the process and the call.
    pub(super) fn draw(&self, seed: u64, rule: &str, tag: &str) -> Random {
        let mut hasher = FnvHasher::default();
        for text in [rule, tag, self.call] {
            hasher.write(text.as_bytes());
            // It is in no UTF-8 text: it separates.
            hasher.write(&[0xff]);
        }
        for number in [self.ordinal, seed] {
            hasher.write(&number.to_le_bytes());
        }
        Random::new(hasher.finish())
    }
}
