//! The use that requests make of memory.

/// The role of a request's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BufferRole {
    /// The buffers are sent.
    Payload,
    /// The answer to a READ or an atomic is stored in the buffers.
    Answer,
    /// A message is stored in the buffers.
    Receive,
}

impl BufferRole {
    /// Returns the name of the role, as in "a receive".
    pub(super) const fn name(self) -> &'static str {
        match self {
            BufferRole::Payload => "a send request",
            BufferRole::Answer => "a READ or an atomic",
            BufferRole::Receive => "a receive",
        }
    }
}
