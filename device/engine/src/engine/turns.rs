//! The queue pairs that wait for a turn, for room at their peers, or for a time.

use pumice_platform::error::ResourceError;

use super::schedule::{Deadlines, Ready};

/// The lists of the queue pairs that the engine has to visit, and when.
pub(crate) struct Turns {
    /// Queue pairs that may have something to send.
    pub(crate) senders: Ready,
    /// Queue pairs that have to respond.
    pub(crate) responders: Ready,
    /// Queue pairs to which something happened since the engine last determined what they have to do.
    pub(crate) touched: Ready,
    /// The times at which queue pairs have to be driven.
    pub(crate) deadlines: Deadlines,
    /// Senders whose receiver has no room, until `held_until_ns`.
    pub(crate) held: Ready,
    /// Responders whose requester has no room.
    pub(crate) held_responders: Ready,
    /// The time at which the held queue pairs try again, in ns; `None`: there are none.
    pub(crate) held_until_ns: Option<u64>,
}

impl Turns {
    /// Returns empty lists with room for all queue pairs.
    ///
    /// # Errors
    /// Fails with `NoMemory` if the memory cannot be allocated.
    pub(super) fn new() -> Result<Turns, ResourceError> {
        Ok(Turns {
            senders: Ready::new()?,
            responders: Ready::new()?,
            touched: Ready::new()?,
            deadlines: Deadlines::new()?,
            held: Ready::new()?,
            held_responders: Ready::new()?,
            held_until_ns: None,
        })
    }

    /// Touches the memory of all lists for a new queue pair, which its first message would touch otherwise:
    /// some hundred pages, because the index is drawn.
    pub(crate) fn make_room(&mut self, index: u32) {
        for list in [
            &mut self.senders,
            &mut self.responders,
            &mut self.touched,
            &mut self.held,
            &mut self.held_responders,
        ] {
            list.make_room(index);
        }
        self.deadlines.make_room(index);
    }

    /// Sets when held queue pairs try again, unless others wait for an earlier time.
    #[inline]
    pub(super) fn hold_until(&mut self, until_ns: u64) {
        self.held_until_ns.get_or_insert(until_ns);
    }

    /// Lets the held queue pairs try again with the next turn.
    pub(super) fn end_holding(&mut self) {
        if self.held_until_ns.is_some() {
            self.held_until_ns = Some(0);
        }
    }

    /// Gives the held queue pairs their turns again, if the time for that has come.
    #[inline]
    pub(super) fn release_held(&mut self, now_ns: u64) {
        if self.held_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.held_until_ns = None;
            while let Some(index) = self.held.pop() {
                self.senders.push(index);
            }
            while let Some(index) = self.held_responders.pop() {
                self.responders.push(index);
            }
        }
    }
}
