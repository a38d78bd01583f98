//! Reasons why memory cannot be accessed.

/// Reason why memory could not be accessed. The protocol turns it into a NAK or a completion status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryError {
    /// The key does not exist, or is not valid now.
    UnknownKey,
    /// The key belongs to another protection domain (or another QP, for a type-2 window).
    WrongDomain,
    /// The range is not inside the region, or wraps.
    OutOfRange,
    /// The region lacks the right.
    AccessDenied,
    /// An atomic's address is not a multiple of 8.
    Misaligned,
    /// The region is paged on demand, and there is no page, or no page with that right.
    NotMapped,
}

impl MemoryError {
    /// Describes the fault, for messages.
    pub const fn reason(self) -> &'static str {
        match self {
            MemoryError::UnknownKey => "the key is unknown or no longer valid",
            MemoryError::WrongDomain => "the key belongs to another protection domain or queue pair",
            MemoryError::OutOfRange => "the range is not inside the memory region",
            MemoryError::AccessDenied => "the memory region lacks the access right",
            MemoryError::Misaligned => "the address is not a multiple of 8",
            MemoryError::NotMapped => "the process has no memory there, or not with that right",
        }
    }
}
