//! The certificate of a run: whether it is certain to repeat, and why not.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher as _;

use fnv::FnvHasher;

/// Maximum number of doubts that are stored; further ones are counted.
const MAX_DOUBTS: usize = 64;

/// An event whose result may differ in the next run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Doubt {
    /// Name of the thread, as in "p2.t1".
    pub thread: String,
    /// Name of the program that it runs.
    pub program: String,
    /// Action of the thread, as in "read /sys/class/thermal/temp".
    pub did: String,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) {}", self.program, self.thread, self.did)
    }
}

/// The certificate that a run has at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Digest of all decisions and of the result of every call.
    pub digest: u64,
    /// Events that may not repeat, each once.
    pub doubts: Vec<Doubt>,
    /// Number of doubts beyond those.
    pub left_out: u64,
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.doubts.is_empty() {
            return write!(f, "certified: this run repeats (digest {:016x})", self.digest);
        }
        let all: Vec<String> = self.doubts.iter().map(Doubt::to_string).collect();
        write!(f, "not certified: {}", all.join("; "))?;
        if self.left_out > 0 {
            write!(f, "; and {} more", self.left_out)?;
        }
        write!(f, " (digest {:016x})", self.digest)
    }
}

/// A certificate that is being built.
#[derive(Default)]
pub(crate) struct Record {
    hasher: FnvHasher,
    doubts: BTreeMap<(String, String), Doubt>,
    left_out: u64,
}

impl Record {
    /// Adds a decision or a result to the digest.
    pub(crate) fn add(&mut self, words: &[u64]) {
        for word in words {
            self.hasher.write_u64(*word);
        }
    }

    pub(crate) fn doubt(&mut self, doubt: Doubt) {
        let key = (doubt.program.clone(), doubt.did.clone());
        if self.doubts.len() >= MAX_DOUBTS && !self.doubts.contains_key(&key) {
            self.left_out = self.left_out.saturating_add(1);
        } else {
            self.doubts.entry(key).or_insert(doubt);
        }
    }

    pub(crate) fn certificate(&self) -> Certificate {
        Certificate {
            digest: self.hasher.finish(),
            doubts: self.doubts.values().cloned().collect(),
            left_out: self.left_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_is_reported_once_and_ends_the_certificate() {
        let mut record = Record::default();
        record.add(&[1, 2]);
        assert!(record.certificate().to_string().starts_with("certified: this run repeats (digest "));
        for thread in ["p1.t1", "p2.t1"] {
            let (program, did) = ("server".to_owned(), "read /sys/x".to_owned());
            record.doubt(Doubt { thread: thread.to_owned(), program, did });
        }
        let said = record.certificate().to_string();
        assert!(said.starts_with("not certified: server (p1.t1) read /sys/x (digest "), "{said}");
    }
}
