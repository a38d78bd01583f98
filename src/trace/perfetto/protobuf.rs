//! The wire format of protocol buffers, as far as a trace needs it: numbers, and bytes with their length. A
//! trace has six kinds of messages with some thirty fields, so the field numbers are written in the code; a
//! package would need a structure for each message.

/// A message that is being built.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct ProtobufMessage {
    bytes: Vec<u8>,
}

/// Wire types, which say how a field is encoded.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

impl ProtobufMessage {
    /// Returns the whole message.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends a number, an enum or a Boolean.
    pub(super) fn number(mut self, field: u64, value: u64) -> ProtobufMessage {
        self.varint(field << 3 | VARINT);
        self.varint(value);
        self
    }

    /// Appends a number that may be negative (`int64`).
    pub(super) fn signed(self, field: u64, value: i64) -> ProtobufMessage {
        self.number(field, value as u64)
    }

    /// Appends a number of 8 bytes (`fixed64`).
    pub(super) fn fixed(mut self, field: u64, value: u64) -> ProtobufMessage {
        self.varint(field << 3 | FIXED64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a real number (`double`).
    pub(super) fn real(self, field: u64, value: f64) -> ProtobufMessage {
        self.fixed(field, value.to_bits())
    }

    /// Appends a text.
    pub(super) fn text(self, field: u64, text: &str) -> ProtobufMessage {
        self.delimited(field, text.as_bytes())
    }

    /// Appends a message within this one.
    pub(super) fn message(self, field: u64, inner: &ProtobufMessage) -> ProtobufMessage {
        self.delimited(field, &inner.bytes)
    }

    fn delimited(mut self, field: u64, bytes: &[u8]) -> ProtobufMessage {
        self.varint(field << 3 | LENGTH);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_the_format_says() {
        let inner = ProtobufMessage::default().text(2, "testing");
        assert_eq!(inner.bytes(), b"\x12\x07testing");
        let numbers = ProtobufMessage::default().number(1, 150).signed(3, -2).fixed(4, 1);
        let expected = [
            &[0x08, 0x96, 0x01][..],
            &[0x18, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0x21, 1, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(numbers.bytes(), expected.concat());
        let outer = ProtobufMessage::default().message(60, &inner).real(5, 1.0);
        let expected = [&[0xe2, 0x03, 9][..], inner.bytes(), &[0x29, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]];
        assert_eq!(outer.bytes(), expected.concat());
    }
}
