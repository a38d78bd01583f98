//! What requests do with memory.

/// What a request does with its buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// They are sent.
    Payload,
    /// The answer to a READ or an atomic is stored in them.
    Answer,
    /// A message is stored in them.
    Receive,
}

impl Role {
    /// As in "a receive".
    pub(super) const fn name(self) -> &'static str {
        match self {
            Role::Payload => "a send request",
            Role::Answer => "a READ or an atomic",
            Role::Receive => "a receive",
        }
    }
}
