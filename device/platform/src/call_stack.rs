//! Call stacks as return addresses. Equal ones share their memory.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::sync::Arc;

use fnv::FnvBuildHasher;

/// Most return addresses that are stored of a stack, the program's innermost first.
pub const MAX_FRAMES: usize = 24;
/// Most different stacks that are stored; later ones are empty.
const MAX_STACKS: usize = 4096;
/// Number of recent stacks that are compared before all others.
const LATEST: usize = 4;

/// A call site, as the return addresses of the program's frames, innermost first; empty if it is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Stack(Arc<[u64]>);

impl Stack {
    /// Returns the return addresses, innermost first.
    pub fn addresses(&self) -> &[u64] {
        &self.0
    }

    /// Reports whether the call site is unknown.
    pub fn is_unknown(&self) -> bool {
        self.0.is_empty()
    }
}

impl Borrow<[u64]> for Stack {
    fn borrow(&self) -> &[u64] {
        &self.0
    }
}

/// All stacks that were captured.
#[derive(Debug, Default)]
pub struct Stacks {
    known: HashSet<Stack, FnvBuildHasher>,
    /// The stacks that were looked up last, because a program makes a few calls again and again.
    latest: [Stack; LATEST],
    oldest: usize,
}

impl Stacks {
    /// Returns the stack with these addresses, of which the first [`MAX_FRAMES`] count.
    pub fn keep(&mut self, addresses: &[u64]) -> Stack {
        let addresses = addresses.get(..MAX_FRAMES).unwrap_or(addresses);
        if let Some(known) = self.latest.iter().find(|known| known.addresses() == addresses) {
            return known.clone();
        }
        let stack = match self.known.get(addresses) {
            Some(known) => known.clone(),
            None if self.known.len() >= MAX_STACKS => return Stack::default(),
            None => {
                let stack = Stack(addresses.into());
                self.known.insert(stack.clone());
                stack
            }
        };
        if let Some(latest) = self.latest.get_mut(self.oldest) {
            *latest = stack.clone();
        }
        self.oldest = (self.oldest + 1) % LATEST;
        stack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_share_memory_and_their_number_is_bounded() {
        let mut stacks = Stacks::default();
        let (one, other) = (stacks.keep(&[1, 2]), stacks.keep(&[1, 2]));
        assert!(Arc::ptr_eq(&one.0, &other.0));
        assert_eq!(stacks.keep(&[7; 100]).addresses().len(), MAX_FRAMES);
        for address in 0..2 * MAX_STACKS as u64 {
            stacks.keep(&[address, 9]);
        }
        assert!(stacks.keep(&[5, 5]).is_unknown());
        assert_eq!(stacks.keep(&[1, 2]), one, "what is known stays known");
    }
}
