//! The ordinals of objects and calls among those of their kind, which are the same in every run.
//!
//! The ordinal of an object that the first thread of the program has created, or one without a name, is the
//! number of such objects of its kind that were created before it: `3`. The ordinal of an object that another
//! thread has created is the name of that thread, and the number of objects that this thread had created
//! before it: `2:0` is the first that thread 2 created. So threads that create objects at the same time give
//! them the same ordinals in every run.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::outside::thread::ThreadName;

/// The bit that marks the ordinal of an object of a thread.
const OF_A_THREAD: u32 = 1 << 31;
/// Number of bits of the count within a thread.
const COUNT_BITS: u32 = u32::BITS - 1 - ThreadName::BITS;
const COUNT: u32 = (1 << COUNT_BITS) - 1;
/// Most threads whose objects are counted apart; those of further threads are counted with those of the first
/// thread.
const MAX_THREADS: usize = 4096;

/// The ordinal of an object, as people read and write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ordinal(pub u32);

impl Ordinal {
    /// Returns the ordinal of the object that a thread has created after `before` others; `None` if the count
    /// is too large.
    pub fn of_thread(thread: ThreadName, before: u32) -> Option<Ordinal> {
        (before <= COUNT).then_some(Ordinal(OF_A_THREAD | thread.bits() << COUNT_BITS | before))
    }

    /// Returns the thread that the ordinal names, and the number of objects created before.
    pub fn parts(self) -> (Option<ThreadName>, u32) {
        if self.0 & OF_A_THREAD == 0 {
            return (None, self.0);
        }
        match ThreadName::of_bits((self.0 & !OF_A_THREAD) >> COUNT_BITS) {
            Some(thread) => (Some(thread), self.0 & COUNT),
            None => (None, self.0),
        }
    }

    /// Reports whether a person who writes `wanted` means this object: a number alone means an object of any
    /// thread.
    pub fn matches_selector(self, wanted: Ordinal) -> bool {
        let (thread, before) = wanted.parts();
        OrdinalSpan { thread, first: before, last: before }.has(self.0)
    }
}

impl fmt::Display for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (None, before) => write!(f, "{before}"),
            (Some(thread), before) => write!(f, "{thread}:{before}"),
        }
    }
}

/// The error of a text that is no ordinal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidOrdinal;

impl FromStr for Ordinal {
    type Err = InvalidOrdinal;

    fn from_str(text: &str) -> Result<Ordinal, InvalidOrdinal> {
        let found = match text.split_once(':') {
            None => text.parse().ok().filter(|number| number & OF_A_THREAD == 0).map(Ordinal),
            Some((thread, before)) => {
                let thread = thread.parse().ok();
                thread.and_then(|thread| Ordinal::of_thread(thread, before.parse().ok()?))
            }
        };
        found.ok_or(InvalidOrdinal)
    }
}

/// The objects that a person means: `3`, `3..10`, `3..` of any thread, or those of one: `2:0..3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrdinalSpan {
    /// The thread that created them; `None`: any.
    pub thread: Option<ThreadName>,
    /// Ordinal of the first object within that thread.
    pub first: u32,
    /// Ordinal of the last object within that thread.
    pub last: u32,
}

impl OrdinalSpan {
    /// Returns a span of one object of any thread.
    pub const fn one(number: u32) -> OrdinalSpan {
        OrdinalSpan { thread: None, first: number, last: number }
    }

    /// Reports whether the object with this ordinal is in the span.
    pub fn has(self, ordinal: u32) -> bool {
        let (thread, before) = Ordinal(ordinal).parts();
        let is_of = |wanted| wanted == thread.unwrap_or(ThreadName::MAIN);
        self.thread.is_none_or(is_of) && (self.first..=self.last).contains(&before)
    }
}

impl fmt::Display for OrdinalSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(thread) = self.thread {
            write!(f, "{thread}:")?;
        }
        match (self.first, self.last) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, u32::MAX) => write!(f, "{first}.."),
            (first, last) => write!(f, "{first}..{last}"),
        }
    }
}

impl FromStr for OrdinalSpan {
    type Err = InvalidOrdinal;

    fn from_str(text: &str) -> Result<OrdinalSpan, InvalidOrdinal> {
        let (thread, numbers) = match text.split_once(':') {
            Some((thread, numbers)) => (Some(thread.trim().parse().map_err(|_| InvalidOrdinal)?), numbers),
            None => (None, text),
        };
        let number = |text: &str| text.trim().parse().map_err(|_| InvalidOrdinal);
        let (first, last) = match numbers.split_once("..") {
            None => (number(numbers)?, number(numbers)?),
            Some((first, "")) => (number(first)?, u32::MAX),
            Some((first, last)) => (number(first)?, number(last)?),
        };
        Ok(OrdinalSpan { thread, first, last })
    }
}

/// The ordinal of a call among those of its name, from 1, as people read and write it: `5`, or `2:5` for the
/// fifth that thread 2 made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallOrdinal(pub u64);

/// The bit that marks the ordinal of a call of a thread.
const CALL_OF_A_THREAD: u64 = 1 << 63;
/// Number of bits of the ordinal within a thread.
const CALL_BITS: u32 = u64::BITS - 1 - ThreadName::BITS;

impl CallOrdinal {
    /// Returns the ordinal of the `nth` call of a thread.
    pub fn of_thread(thread: ThreadName, nth: u64) -> CallOrdinal {
        let nth = nth.min((1 << CALL_BITS) - 1);
        CallOrdinal(CALL_OF_A_THREAD | u64::from(thread.bits()) << CALL_BITS | nth)
    }

    /// Returns the thread that the ordinal names, and the ordinal within it.
    pub fn parts(self) -> (Option<ThreadName>, u64) {
        let bits = (self.0 & !CALL_OF_A_THREAD) >> CALL_BITS;
        match u32::try_from(bits)
            .ok()
            .filter(|_| self.0 & CALL_OF_A_THREAD != 0)
            .and_then(ThreadName::of_bits)
        {
            Some(thread) => (Some(thread), self.0 & ((1 << CALL_BITS) - 1)),
            None => (None, self.0),
        }
    }
}

impl fmt::Display for CallOrdinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (None, nth) => write!(f, "{nth}"),
            (Some(thread), nth) => write!(f, "{thread}:{nth}"),
        }
    }
}

impl FromStr for CallOrdinal {
    type Err = InvalidOrdinal;

    fn from_str(text: &str) -> Result<CallOrdinal, InvalidOrdinal> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| InvalidOrdinal);
        match text.split_once(':') {
            None => number(text).map(CallOrdinal),
            Some((thread, nth)) => {
                let thread = thread.parse().map_err(|_| InvalidOrdinal)?;
                Ok(CallOrdinal::of_thread(thread, number(nth)?))
            }
        }
    }
}

/// Assigns ordinals to the objects of a kind.
#[derive(Debug, Default)]
pub struct ObjectOrdinals {
    /// Number of objects of the first thread, and of threads without a name.
    made: u32,
    of_threads: BTreeMap<ThreadName, u32>,
}

impl ObjectOrdinals {
    /// Returns the ordinal of an object that this thread creates.
    pub fn add(&mut self) -> Ordinal {
        self.add_of(ThreadName::own())
    }

    /// Returns the ordinal of an object that a thread creates.
    pub fn add_of(&mut self, thread: Option<ThreadName>) -> Ordinal {
        let thread = thread.filter(|thread| *thread != ThreadName::MAIN);
        if let Some(thread) = thread
            && (self.of_threads.len() < MAX_THREADS || self.of_threads.contains_key(&thread))
        {
            let count = self.of_threads.entry(thread).or_default();
            if let Some(ordinal) = Ordinal::of_thread(thread, *count) {
                *count += 1;
                return ordinal;
            }
        }
        let ordinal = Ordinal(self.made & !OF_A_THREAD);
        self.made = self.made.wrapping_add(1);
        ordinal
    }

    /// Returns how many objects were created.
    pub fn count(&self) -> u32 {
        self.of_threads.values().fold(self.made, |sum, count| sum.saturating_add(*count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_apart() {
        let mut made = ObjectOrdinals::default();
        let (first, second) = ("0".parse().ok(), "1.3".parse().ok());
        let makers = [None, first, second, Some(ThreadName::MAIN), first];
        let numbers = makers.map(|thread| made.add_of(thread).to_string());
        assert_eq!(numbers, ["0", "0:0", "1.3:0", "1", "0:1"]);
        assert_eq!(made.count(), 5);
        assert_eq!(made.add(), Ordinal(2), "without the preload threads have no names");
    }

    #[test]
    fn more_than_a_thread_can_count_are_counted_with_the_others() {
        let mut made = ObjectOrdinals::default();
        let thread = "5".parse().ok();
        let last = (0..=COUNT).map(|_| made.add_of(thread)).last();
        assert_eq!(last.map(|last| last.to_string()), Some(format!("5:{COUNT}")));
        assert_eq!(made.add_of(thread), Ordinal(0));
    }

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for text in ["0", "17", "main:0", "0:0", "2.0:5", "1021:2047"] {
            let ordinal: Ordinal = text.parse().expect(text);
            assert_eq!(ordinal.to_string(), text);
        }
        for text in ["1", "18446744073709551", "main:1", "0:1", "30.30:77777777777"] {
            let ordinal: CallOrdinal = text.parse().expect(text);
            assert_eq!(ordinal.to_string(), text);
        }
        assert_eq!("1:x".parse::<CallOrdinal>(), Err(InvalidOrdinal));
        for text in ["", "x", "-1", "2147483648", "1:", ":1", "1:2048", "x:1"] {
            assert_eq!(text.parse::<Ordinal>(), Err(InvalidOrdinal), "{text}");
        }
    }

    #[test]
    fn a_number_alone_means_objects_of_any_thread() {
        let ordinals = ["0", "1", "0:0", "2.0:1"].map(|text| text.parse::<Ordinal>().expect(text));
        for (text, meant) in [
            ("0", [true, false, true, false]),
            ("1..", [false, true, false, true]),
            ("0..3", [true; 4]),
            ("main:0", [true, false, false, false]),
            ("0:0..7", [false, false, true, false]),
            ("2.0:1", [false, false, false, true]),
        ] {
            let span: OrdinalSpan = text.parse().expect(text);
            assert_eq!(span.to_string(), text);
            assert_eq!(ordinals.map(|ordinal| span.has(ordinal.0)), meant, "{text}");
        }
        for text in ["", "a", "1..0x", ":1", "1:", "1:2:3", "..3"] {
            assert_eq!(text.parse::<OrdinalSpan>(), Err(InvalidOrdinal), "{text}");
        }
        assert!(Ordinal(4).matches_selector(Ordinal(4)) && !Ordinal(4).matches_selector(Ordinal(3)));
    }
}
