//! Notes for captures about packets that a fault plan changed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Most notes that are stored: more than packets can be in flight.
pub const MAX_NOTES: usize = 65_536;

/// Notes by the number that a [`Fate`](pumice_transport::types::Fate) carries: written where fates are
/// decided, and read where packets leave.
#[derive(Debug, Clone, Default)]
pub struct Notes(Arc<Mutex<StoredNotes>>);

#[derive(Debug, Default)]
struct StoredNotes {
    /// The number of the newest note.
    newest: u32,
    texts: VecDeque<Arc<str>>,
}

impl Notes {
    /// Stores a note, and returns its number, which is never 0.
    pub fn store(&self, text: String) -> u32 {
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if stored.newest == u32::MAX {
            *stored = StoredNotes::default();
        }
        if stored.texts.len() >= MAX_NOTES {
            stored.texts.pop_front();
        }
        stored.texts.push_back(text.into());
        stored.newest += 1;
        stored.newest
    }

    /// Returns the note of this number, if it is still stored.
    pub fn of(&self, number: u32) -> Option<Arc<str>> {
        let stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = usize::try_from(stored.newest.checked_sub(number)?).ok()?;
        let index = stored.texts.len().checked_sub(before.checked_add(1)?)?;
        stored.texts.get(index).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_found_by_their_numbers_while_they_are_new() {
        let notes = Notes::default();
        assert_eq!((notes.of(0), notes.of(1)), (None, None));
        let numbers: Vec<u32> = (0..MAX_NOTES as u32 + 2).map(|i| notes.store(i.to_string())).collect();
        assert_eq!(notes.of(numbers[2]).as_deref(), Some("2"));
        assert_eq!(notes.of(numbers[MAX_NOTES + 1]).as_deref(), Some("65537"));
        assert_eq!((notes.of(numbers[1]), notes.of(numbers[MAX_NOTES + 1] + 1)), (None, None));
        assert_eq!(notes.of(0), None);
    }
}
