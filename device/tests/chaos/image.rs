//! What a node's memory must look like at the end.

use std::ops::Range;

use crate::kit::Memory;

/// Between two areas: no operation may touch it.
const GUARD_BYTES: usize = 24;
const GUARD: u8 = 0xa5;

/// Areas of a node's memory with guards between them, their first contents and their last.
#[derive(Debug, Default)]
pub struct Image {
    initial: Vec<u8>,
    expected: Vec<u8>,
    loose: Vec<Range<usize>>,
}

impl Image {
    /// A new area with these contents: its offset, a multiple of 8.
    pub fn area(&mut self, contents: &[u8]) -> usize {
        let offset = (self.initial.len() + GUARD_BYTES).next_multiple_of(8);
        for bytes in [&mut self.initial, &mut self.expected] {
            bytes.resize(offset, GUARD);
            bytes.extend_from_slice(contents);
        }
        offset
    }

    /// Memory to register: the areas and a guard behind the last.
    pub fn size(&self) -> usize {
        (self.initial.len() + GUARD_BYTES).next_multiple_of(8)
    }

    /// From now on these bytes are expected.
    pub fn expect(&mut self, offset: usize, bytes: &[u8]) {
        self.expected[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    pub fn expected(&self, offset: usize, length: usize) -> &[u8] {
        &self.expected[offset..offset + length]
    }

    /// A word that several writers add to.
    pub fn expect_added(&mut self, offset: usize, add: u64) {
        let word: [u8; 8] = self.expected(offset, 8).try_into().unwrap();
        let sum = u64::from_ne_bytes(word).wrapping_add(add);
        self.expect(offset, &sum.to_ne_bytes());
    }

    /// The contents of a range are not foreseen.
    pub fn loosen(&mut self, offset: usize, length: usize) {
        self.loose.push(offset..offset + length);
    }

    pub fn load(&self, memory: &Memory) {
        memory.write(0, &vec![GUARD; memory.len()]);
        memory.write(0, &self.initial);
    }

    pub fn check(&self, memory: &Memory, who: &str) {
        let mut expected = self.expected.clone();
        expected.resize(memory.len(), GUARD);
        let found = memory.all();
        for range in &self.loose {
            expected[range.clone()].copy_from_slice(&found[range.clone()]);
        }
        if let Some(at) = (0..found.len()).find(|&at| found[at] != expected[at]) {
            panic!(
                "{who}: byte {at} of the memory is {:#04x} instead of {:#04x}; it was {:#04x?} before",
                found[at],
                expected[at],
                self.initial.get(at)
            );
        }
    }
}
