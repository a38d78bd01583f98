//! What captures say about packets that a plan has harmed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Notes that are kept: more than packets can be under way.
pub(crate) const MAX_NOTES: usize = 65_536;

/// Notes by the number that a [`Fate`](pumice_transport::types::Fate) carries: written where fates are
/// decided, and read where packets leave.
#[derive(Debug, Clone, Default)]
pub struct Notes(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The number of the newest one.
    newest: u32,
    texts: VecDeque<Arc<str>>,
}

impl Notes {
    /// Keeps a note; its number, never 0.
    pub fn keep(&self, text: String) -> u32 {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.newest == u32::MAX {
            *kept = Kept::default();
        }
        if kept.texts.len() >= MAX_NOTES {
            kept.texts.pop_front();
        }
        kept.texts.push_back(text.into());
        kept.newest += 1;
        kept.newest
    }

    /// The note of this number, if it is one of the newest.
    pub fn of(&self, number: u32) -> Option<Arc<str>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = usize::try_from(kept.newest.checked_sub(number)?).ok()?;
        let index = kept.texts.len().checked_sub(before.checked_add(1)?)?;
        kept.texts.get(index).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_found_by_their_numbers_while_they_are_new() {
        let notes = Notes::default();
        assert_eq!((notes.of(0), notes.of(1)), (None, None));
        let numbers: Vec<u32> = (0..MAX_NOTES as u32 + 2).map(|i| notes.keep(i.to_string())).collect();
        assert_eq!(notes.of(numbers[2]).as_deref(), Some("2"));
        assert_eq!(notes.of(numbers[MAX_NOTES + 1]).as_deref(), Some("65537"));
        assert_eq!((notes.of(numbers[1]), notes.of(numbers[MAX_NOTES + 1] + 1)), (None, None));
        assert_eq!(notes.of(0), None);
    }
}
