//! What a datagram of a service that numbers its messages says, for those that look at packets.

/// A part of a message of SRD or DC, or an answer to one: what is behind the DETH of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberedPart {
    /// The service: "SRD", "DC".
    pub service: &'static str,
    /// What it is, in words.
    pub kind: &'static str,
    /// Number of the message on its way.
    pub message: u64,
    /// Which of its parts, from 0.
    pub part: u32,
    /// Parts of the message, or of the request that this answers.
    pub parts: u32,
    /// Bytes of the message.
    pub length_bytes: u32,
    /// Of DC: which stream of the initiator.
    pub stream: Option<u16>,
}
