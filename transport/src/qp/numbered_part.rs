//! Description of a datagram of a service that numbers its messages, for programs that show packets.

/// A part of a message of SRD or DC, or an answer to one: the contents behind the DETH of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberedPart {
    /// Name of the service: "SRD" or "DC".
    pub service: &'static str,
    /// Kind of the packet, in words.
    pub kind: &'static str,
    /// Number of the message.
    pub message: u64,
    /// Index of the part, from 0.
    pub part: u32,
    /// Number of parts of the message, or of the request that this answers.
    pub parts: u32,
    /// Length of the message in bytes.
    pub length_bytes: u32,
    /// Stream of the initiator, for DC.
    pub stream: Option<u16>,
}
