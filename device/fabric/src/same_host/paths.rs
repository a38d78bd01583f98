//! Paths of batches, which are described once per ring and then have a number.

use std::net::IpAddr;

use pumice_transport::path::{Flow, Path};

use crate::members::record;

/// Number of paths that a ring knows at a time: as many as a byte can name. Each queue pair has one path,
/// whose number follows from its source port and its marks; another path of that number replaces it.
pub(super) const MAX_PATHS: usize = 256;

/// Length of an encoded path in bytes.
const PATH_BYTES: usize = 48;
/// TTL of batches whose path leaves it to the port: that of the kernel.
const DEFAULT_HOP_LIMIT: u8 = 64;

/// The path of batches as their receiver sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchPath {
    pub(super) flow: Flow,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
}

impl BatchPath {
    /// Returns the batch path that corresponds to a path.
    pub(super) fn of(path: &Path) -> BatchPath {
        let hop_limit = if path.hop_limit == 0 { DEFAULT_HOP_LIMIT } else { path.hop_limit };
        BatchPath { flow: path.flow, traffic_class: path.traffic_class, hop_limit }
    }

    /// Encodes family, marks, ports and addresses. Returns `None` if the addresses are of two families.
    pub(super) fn encode(&self) -> Option<[u8; PATH_BYTES]> {
        let (family, source) = record::address_bytes(self.flow.source);
        let (other_family, destination) = record::address_bytes(self.flow.destination);
        let [s0, s1] = self.flow.source_port.to_le_bytes();
        let [d0, d1] = self.flow.destination_port.to_le_bytes();
        let mut bytes = [0; PATH_BYTES];
        let (head, rest) = bytes.split_first_chunk_mut::<16>()?;
        head.split_first_chunk_mut::<7>()?.0.clone_from(&[
            family,
            self.traffic_class,
            self.hop_limit,
            s0,
            s1,
            d0,
            d1,
        ]);
        let (first, rest) = rest.split_first_chunk_mut::<16>()?;
        *first = source;
        *rest.first_chunk_mut::<16>()? = destination;
        (family == other_family).then_some(bytes)
    }

    /// Decodes a batch path.
    pub(super) fn decode(bytes: &[u8]) -> Option<BatchPath> {
        let (head, rest) = bytes.split_first_chunk::<16>()?;
        let [family, traffic_class, hop_limit, s0, s1, d0, d1, ..] = *head;
        let (source, rest) = rest.split_first_chunk::<16>()?;
        let address = |bytes: &[u8; 16]| -> Option<IpAddr> { record::address_from(family, bytes) };
        let flow = Flow {
            source: address(source)?,
            destination: address(rest.first_chunk::<16>()?)?,
            source_port: u16::from_le_bytes([s0, s1]),
            destination_port: u16::from_le_bytes([d0, d1]),
        };
        Some(BatchPath { flow, traffic_class, hop_limit })
    }
}

/// The numbers of the paths of a ring, as its producer knows them.
#[derive(Debug)]
pub(super) struct PathNumbers {
    known: Box<[Option<Path>]>,
    /// Series of batches that was searched for last (0 for none), and the number of its path.
    last: (u64, u8),
}

impl Default for PathNumbers {
    fn default() -> PathNumbers {
        PathNumbers { known: vec![None; MAX_PATHS].into_boxed_slice(), last: (0, 0) }
    }
}

/// The number of a path, and whether the consumer knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathNumber {
    Known(u8),
    /// The path has to be described to the consumer first.
    New(u8),
}

impl PathNumbers {
    /// Finds the number of a path as [`find`](Self::find) does, but only once for each series of batches (0
    /// for no series).
    #[inline]
    pub(super) fn find_of_series(&mut self, series: u64, path: &Path) -> PathNumber {
        let (last, number) = self.last;
        if series != 0 && series == last {
            debug_assert_eq!(self.find(path), PathNumber::Known(number), "a series of batches has one path");
            return PathNumber::Known(number);
        }
        let found = self.find(path);
        if let PathNumber::Known(number) = found {
            self.last = (series, number);
        }
        found
    }

    /// Returns the number of the path of a series, if it was the last one that was searched for.
    #[inline]
    pub(super) const fn number_of_series(&self, series: u64) -> Option<u8> {
        let (last, number) = self.last;
        if series != 0 && series == last { Some(number) } else { None }
    }

    /// Returns the number that a path has, or that it would have.
    #[inline]
    pub(super) fn find(&self, path: &Path) -> PathNumber {
        let number = number_of(path);
        match self.known.get(usize::from(number)) {
            Some(Some(known)) if known == path => PathNumber::Known(number),
            _ => PathNumber::New(number),
        }
    }

    /// Assigns to the path the number that `find` returned, which another path may have had.
    pub(super) fn learn(&mut self, path: &Path) {
        self.last = (0, 0);
        if let Some(known) = self.known.get_mut(usize::from(number_of(path))) {
            *known = Some(path.clone());
        }
    }
}

#[inline]
fn number_of(path: &Path) -> u8 {
    let [high, low] = path.flow.source_port.to_be_bytes();
    low ^ high.rotate_left(5) ^ path.traffic_class.rotate_left(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(source: &str, destination: &str, traffic_class: u8) -> Path {
        let flow = Flow {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            source_port: 4791,
            destination_port: 4792,
        };
        Path { flow, traffic_class, hop_limit: 0, flow_label: 0 }
    }

    #[test]
    fn ways_are_bytes_and_back() {
        for (source, destination) in [("127.0.0.1", "10.0.0.9"), ("::1", "fe80::7")] {
            let batch_path = BatchPath::of(&path(source, destination, 0x63));
            assert_eq!(batch_path.hop_limit, 64);
            let bytes = batch_path.encode().unwrap();
            assert_eq!(BatchPath::decode(&bytes), Some(batch_path));
            let mut other = bytes;
            other[0] = 5;
            assert_eq!(BatchPath::decode(&other), None);
        }
        assert_eq!(BatchPath::of(&path("127.0.0.1", "::1", 0)).encode(), None);
    }

    #[test]
    fn a_path_keeps_its_number_until_another_one_takes_it() {
        let mut numbers = PathNumbers::default();
        let from_port = |source_port| {
            let path = path("::1", "::1", 0);
            Path { flow: Flow { source_port, ..path.flow }, ..path }
        };
        let all: Vec<Path> = (0xc000..0xc100).map(from_port).collect();
        for path in &all {
            let PathNumber::New(number) = numbers.find(path) else { panic!("{path:?} is not new") };
            numbers.learn(path);
            assert_eq!(numbers.find(path), PathNumber::Known(number));
        }
        assert!(
            all.iter().all(|path| matches!(numbers.find(path), PathNumber::Known(_))),
            "none takes another's"
        );
        let PathNumber::Known(number) = numbers.find(&all[0]) else { unreachable!("checked above") };
        let other = (0xc100..).map(from_port).find(|other| number_of(other) == number).unwrap();
        assert_eq!(numbers.find(&other), PathNumber::New(number));
        numbers.learn(&other);
        assert_eq!(
            (numbers.find(&other), numbers.find(&all[0])),
            (PathNumber::Known(number), PathNumber::New(number))
        );
        assert_eq!(numbers.find(&all[1]), PathNumber::Known(number_of(&all[1])));
        assert!(
            matches!(numbers.find(&path("::1", "::1", 4)), PathNumber::New(_)),
            "marks are part of a path"
        );
    }

    #[test]
    fn a_series_keeps_the_number_of_its_path_until_another_path_takes_it() {
        let mut numbers = PathNumbers::default();
        let first = path("::1", "::1", 0);
        let second = Path { hop_limit: 9, ..first.clone() };
        let number = number_of(&first);
        assert_eq!(number_of(&second), number);
        assert_eq!(numbers.find_of_series(1, &first), PathNumber::New(number));
        numbers.learn(&first);
        for _ in 0..2 {
            assert_eq!(numbers.find_of_series(1, &first), PathNumber::Known(number));
            assert_eq!(
                numbers.find_of_series(0, &second),
                PathNumber::New(number),
                "no series has the number 0"
            );
        }
        assert_eq!(numbers.find_of_series(2, &second), PathNumber::New(number));
        numbers.learn(&second);
        assert_eq!(numbers.find_of_series(2, &second), PathNumber::Known(number));
        assert_eq!(numbers.find_of_series(1, &first), PathNumber::New(number));
    }
}
