//! Arbitrary values for proofs. A proof is one function that Kani and `cargo test` both run.
//!
//! Under Kani, a value stands for all values of its type, and [`check`] runs its body once, which proves the
//! property. Under `cargo test`, [`check`] runs the body with many values that numbers of a fixed sequence
//! choose, the edges of each range among them, and [`check_all`] runs it with every combination of values.
//!
//! This module is in every build, because the proofs of other crates need it: a crate is compiled for tests
//! only while it is tested itself, and Kani builds no dependencies that only tests have. It is no part of the
//! API.

#[cfg(not(kani))]
use alloc::vec::Vec;

/// The source of a proof's values.
#[derive(Debug)]
pub struct Values {
    #[cfg(not(kani))]
    draw: Draw,
}

/// Checks a property for values of large ranges.
pub fn check(body: impl Fn(&mut Values)) {
    #[cfg(kani)]
    body(&mut Values {});
    #[cfg(not(kani))]
    for run in 0..DRAWN_RUNS {
        body(&mut Values { draw: Draw::Drawn(Drawn { state: run, former: [0; FORMER] }) });
    }
}

/// Checks a property for each combination of values, of which there are few enough to try them all.
pub fn check_all(body: impl Fn(&mut Values)) {
    #[cfg(kani)]
    body(&mut Values {});
    #[cfg(not(kani))]
    {
        let mut values = Values { draw: Draw::Counted(Counted::default()) };
        let mut runs = 0;
        loop {
            body(&mut values);
            runs += 1;
            assert!(runs <= MAX_RUNS, "there are too many combinations to try them all");
            let Draw::Counted(counted) = &mut values.draw else { return };
            if !counted.advance() {
                return;
            }
        }
    }
}

impl Values {
    /// Returns a number that is not larger than `last`.
    pub fn up_to(&mut self, last: u64) -> u64 {
        #[cfg(kani)]
        {
            let number = kani::any();
            kani::assume(number <= last);
            number
        }
        #[cfg(not(kani))]
        match &mut self.draw {
            Draw::Drawn(drawn) => drawn.up_to(last),
            Draw::Counted(counted) => counted.up_to(last),
        }
    }

    /// Returns a number of a range that is not empty.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.up_to(last - first)
    }

    /// Returns true or false.
    pub fn bool(&mut self) -> bool {
        self.up_to(1) == 1
    }

    /// Returns an 8-bit number.
    pub fn u8(&mut self) -> u8 {
        self.up_to(u8::MAX.into()) as u8
    }

    /// Returns a 16-bit number.
    pub fn u16(&mut self) -> u16 {
        self.up_to(u16::MAX.into()) as u16
    }

    /// Returns a 24-bit number, as fields of packets hold it.
    pub fn u24(&mut self) -> u32 {
        self.up_to(0xff_ffff) as u32
    }

    /// Returns a 32-bit number.
    pub fn u32(&mut self) -> u32 {
        self.up_to(u32::MAX.into()) as u32
    }

    /// Returns a 64-bit number.
    pub fn u64(&mut self) -> u64 {
        self.up_to(u64::MAX)
    }

    /// Returns an array of arbitrary bytes.
    pub fn bytes<const LEN: usize>(&mut self) -> [u8; LEN] {
        #[cfg(kani)]
        return kani::any();
        #[cfg(not(kani))]
        core::array::from_fn(|_| self.u8())
    }

    /// Returns one of several values.
    #[expect(
        clippy::indexing_slicing,
        reason = "the index is below the length; an empty list is a wrong proof"
    )]
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.up_to(choices.len() as u64 - 1) as usize]
    }
}

/// Number of times that [`check`] runs its body.
#[cfg(not(kani))]
const DRAWN_RUNS: u64 = 5_000;
/// Largest number of times that [`check_all`] runs its body.
#[cfg(not(kani))]
const MAX_RUNS: u32 = 1 << 20;
/// Number of values of a run that are remembered, so that later ones come near them.
#[cfg(not(kani))]
const FORMER: usize = 4;

#[cfg(not(kani))]
#[derive(Debug)]
enum Draw {
    Drawn(Drawn),
    Counted(Counted),
}

/// A source of numbers of a fixed sequence.
#[cfg(not(kani))]
#[derive(Debug)]
struct Drawn {
    state: u64,
    former: [u64; FORMER],
}

#[cfg(not(kani))]
impl Drawn {
    fn up_to(&mut self, last: u64) -> u64 {
        let choice = self.next();
        let [former, near, ..] = self.former;
        // The number is an edge, a value like an earlier one, a number of any size, or a small one.
        let number = match choice % 16 {
            0 => 0,
            1 => last,
            2 => 1.min(last),
            3 => last.saturating_sub(1),
            4 => last / 2,
            5 => last / 2 + last % 2,
            6 => former,
            7 => former.wrapping_add(1),
            8 => near,
            9 => near.wrapping_sub(1),
            10 => self.next() >> (choice >> 58),
            _ => self.next(),
        };
        let number = if number <= last { number } else { number % (last + 1) };
        self.former.rotate_right(1);
        if let Some(newest) = self.former.first_mut() {
            *newest = number;
        }
        number
    }

    /// Returns the next number of SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// An enumeration of all combinations: the last value counts up first.
#[cfg(not(kani))]
#[derive(Debug, Default)]
struct Counted {
    /// Values of this run, with the largest that each may be.
    values: Vec<(u64, u64)>,
    /// Number of this run's values that were asked for.
    asked: usize,
}

#[cfg(not(kani))]
impl Counted {
    fn up_to(&mut self, last: u64) -> u64 {
        self.asked += 1;
        if let Some((value, _)) = self.values.get(self.asked - 1) {
            return *value;
        }
        self.values.push((0, last));
        0
    }

    /// Advances to the next combination; returns false if there is none.
    fn advance(&mut self) -> bool {
        self.asked = 0;
        while let Some((value, last)) = self.values.last_mut() {
            if *value < *last {
                *value += 1;
                return true;
            }
            self.values.pop();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use core::cell::{Cell, RefCell};

    use super::*;

    #[test]
    fn every_combination_comes_once() {
        let seen = RefCell::new(BTreeSet::new());
        let runs = Cell::new(0);
        check_all(|from| {
            let first = from.up_to(3);
            // A value that is asked for may depend on the values before it.
            let second = if first == 2 { None } else { Some(from.bool()) };
            seen.borrow_mut().insert((first, second));
            runs.set(runs.get() + 1);
        });
        assert_eq!((runs.get(), seen.borrow().len()), (7, 7));
    }

    #[test]
    fn edges_and_equal_values_are_among_those_that_are_drawn() {
        let seen = RefCell::new(BTreeSet::new());
        let equal = Cell::new(0);
        check(|from| {
            let (one, other) = (from.u64(), from.u64());
            seen.borrow_mut().insert(one);
            equal.set(equal.get() + u32::from(one == other));
        });
        for edge in [0, 1, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX - 1, u64::MAX] {
            assert!(seen.borrow().contains(&edge), "{edge:#x}");
        }
        assert!(equal.get() > 100, "{equal:?}");
        check(|from| {
            let last = from.u64();
            assert!(from.up_to(last) <= last);
            assert!((3..=9).contains(&from.between(3, 9)));
        });
    }

    #[test]
    #[should_panic(expected = "too many combinations")]
    fn too_many_combinations_are_no_proof() {
        check_all(|from| {
            from.u32();
        });
    }
}
