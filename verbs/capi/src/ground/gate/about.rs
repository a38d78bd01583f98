//! What is known of calls before they enter.

/// What a call is about, for those who ask.
#[derive(Clone, Copy)]
pub(crate) struct About {
    pub(super) address: usize,
    pub(super) queue_pair: Option<fn(usize) -> Option<u32>>,
}

impl About {
    /// Nothing that is known.
    pub(crate) const NOTHING: About = About { address: 0, queue_pair: None };

    /// The object behind a program's pointer.
    pub(crate) fn of<T>(pointer: *const T) -> About {
        About { address: pointer.addr(), queue_pair: None }
    }

    /// The queue pair behind a program's pointer; `ordinal` finds its ordinal by the address.
    pub(crate) fn queue_pair<T>(pointer: *const T, ordinal: fn(usize) -> Option<u32>) -> About {
        About { address: pointer.addr(), queue_pair: Some(ordinal) }
    }
}
