//! Device behaviour that the specification leaves open, drawn from a seed: the order of completions of
//! different work queues, how many of them a poll returns, events without a completion, when and in which
//! order payload is placed, when requests and acknowledgements leave.
//!
//! **Invariant**: each draw is a function of the seed, the process's tag and the identity of what it is drawn
//! for (the ordinal of a queue pair or completion queue, and of the completion, message or call there). It
//! depends on no clock and no thread.

use std::hash::Hasher as _;

use fnv::FnvHasher;
use pumice_platform::clock::Random;
use serde::Deserialize;

/// The order in which the payload of a message may become visible before the message completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Any order, as the specification allows.
    #[default]
    Any,
    /// From the first byte to the last, as in many adapters.
    InOrder,
}

/// The options of a [`Shuffle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShuffleOptions {
    /// The seed, which determines the schedule.
    pub seed: u64,
    /// The order in which the device may place payload.
    pub placement: Placement,
}

/// A choice that the specification leaves to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The holding of a completion until later ones of other work queues, and the number of empty polls it is
    /// held for.
    Hold,
    /// The number of completions that a poll returns.
    Batch,
    /// An event at once when a queue is armed.
    SpuriousEvent,
    /// No event when a queue is armed for completions that the application cannot know of, although the
    /// device otherwise makes one.
    PlainArming,
    /// The part of a packet's payload that is placed later, and how long completions and responses wait.
    Placement,
    /// The delay with which posted requests leave, if they are delayed.
    Departure,
    /// The part of a WRITE packet that is stored after its acknowledgement, where that is allowed, and how
    /// long after.
    DeferredStore,
    /// The posted receive that a message takes, where that is left open.
    Receive,
    /// The datagrams that later ones overtake, and how many do.
    Overtaking,
}

impl Choice {
    #[doc(hidden)]
    pub const fn name(self) -> &'static str {
        match self {
            Choice::Hold => "hold",
            Choice::Batch => "batch",
            Choice::SpuriousEvent => "spurious event",
            Choice::PlainArming => "plain arming",
            Choice::Placement => "placement",
            Choice::Departure => "departure",
            Choice::DeferredStore => "deferred store",
            Choice::Receive => "receive",
            Choice::Overtaking => "overtaking",
        }
    }
}

/// The drawn schedule of one device.
#[derive(Debug)]
pub struct Shuffle {
    /// Hash of the seed and the tag.
    base: u64,
    placement: Placement,
    /// True if the device runs in virtual time. There nothing happens between two polls, so a completion is
    /// held for one of them at most.
    virtual_time: bool,
}

impl Shuffle {
    #[doc(hidden)]
    pub fn new(options: ShuffleOptions, tag: &str, virtual_time: bool) -> Shuffle {
        let mut hasher = FnvHasher::default();
        hasher.write(tag.as_bytes());
        hasher.write(&[0xff]);
        hasher.write(&options.seed.to_le_bytes());
        Shuffle { base: hasher.finish(), placement: options.placement, virtual_time }
    }

    /// Returns the random numbers of a choice for the one thing that `identity` names.
    pub fn draw(&self, choice: Choice, identity: &[u64]) -> Random {
        // FNV-1a, as for fates, gives the same result on every machine and with every compiler.
        let mut hasher = FnvHasher::default();
        hasher.write(choice.name().as_bytes());
        hasher.write(&[0xff]);
        for number in identity {
            hasher.write(&number.to_le_bytes());
        }
        hasher.write(&self.base.to_le_bytes());
        Random::new(hasher.finish())
    }

    /// Returns how often this seed makes the choice, in parts per million: never, seldom, often or nearly
    /// always, so that one choice does not hide in every seed what another one would show.
    pub fn share_ppm(&self, choice: Choice) -> u32 {
        const SHARES_PPM: [u32; 4] = [0, 125_000, 500_000, 875_000];
        let index = self.draw(choice, &[]).below(SHARES_PPM.len() as u64) as usize;
        SHARES_PPM.get(index).copied().unwrap_or_default()
    }

    /// Returns the order in which the device may place payload.
    pub const fn placement(&self) -> Placement {
        self.placement
    }

    /// Reports whether arming follows the manual page: existing completions make no event. This holds in half
    /// of the seeds, but never for a device that imitates an adapter, as its placement in order says.
    pub fn arms_plainly(&self) -> bool {
        const HALF_PPM: u32 = 500_000;
        self.placement == Placement::Any && self.draw(Choice::PlainArming, &[]).chance(HALF_PPM)
    }

    #[doc(hidden)]
    pub const fn is_virtual_time(&self) -> bool {
        self.virtual_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffle(seed: u64, tag: &str) -> Shuffle {
        Shuffle::new(ShuffleOptions { seed, placement: Placement::Any }, tag, false)
    }

    #[test]
    fn what_is_drawn_follows_from_seed_tag_choice_and_identity() {
        let draw = |seed, tag, choice, identity: &[u64]| shuffle(seed, tag).draw(choice, identity).next_u64();
        let first = draw(7, "server", Choice::Hold, &[1, 2]);
        assert_eq!(first, draw(7, "server", Choice::Hold, &[1, 2]));
        assert_ne!(first, draw(8, "server", Choice::Hold, &[1, 2]));
        assert_ne!(first, draw(7, "client", Choice::Hold, &[1, 2]));
        assert_ne!(first, draw(7, "server", Choice::Batch, &[1, 2]));
        assert_ne!(first, draw(7, "server", Choice::Hold, &[2, 1]));
    }

    #[test]
    fn each_choice_is_made_never_in_some_seeds_and_nearly_always_in_others() {
        let choices = [
            Choice::Hold,
            Choice::Batch,
            Choice::SpuriousEvent,
            Choice::Placement,
            Choice::Departure,
            Choice::DeferredStore,
            Choice::Receive,
        ];
        for choice in choices {
            let shares: Vec<u32> = (0..50).map(|seed| shuffle(seed, "").share_ppm(choice)).collect();
            assert!(shares.contains(&0) && shares.contains(&875_000), "{choice:?}: {shares:?}");
        }
    }
}
