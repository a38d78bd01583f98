//! The parts of a record: numbers with as few bytes as they need, texts, addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest text in a record, in bytes; a longer one is truncated.
pub const TEXT_BYTES: usize = 600;
/// Bytes of the longest number.
pub(super) const NUMBER_BYTES: usize = 10;

/// A destination to which bytes are appended.
pub trait ByteSink {
    /// Appends a byte.
    fn push_byte(&mut self, byte: u8);

    /// Appends several bytes.
    fn push_bytes(&mut self, bytes: &[u8]);

    /// Appends a number: seven bits per byte, lowest first; the highest bit says that more bytes follow.
    fn push_number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push_byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.push_byte(value as u8);
    }
}

impl ByteSink for Vec<u8> {
    #[inline]
    fn push_byte(&mut self, byte: u8) {
        self.push(byte);
    }

    #[inline]
    fn push_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A type that a record field can have. Emitting and parsing are inverses, except that a text is truncated to
/// its limit and that control characters become question marks, because texts are shown on terminals.
pub(super) trait RecordField<'a>: Sized {
    /// Appends the value.
    fn emit(&self, out: &mut impl ByteSink);

    /// Takes a value from the front; `None` if the bytes are no value of this type.
    fn parse(bytes: &mut &'a [u8]) -> Option<Self>;
}

/// Takes a number from the front.
pub(super) fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for index in 0..NUMBER_BYTES {
        let byte = take_byte(bytes)?;
        let bits = u64::from(byte & 0x7f);
        // The last byte has room for one bit.
        if index == NUMBER_BYTES - 1 && bits > 1 {
            return None;
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Takes a byte from the front.
pub(super) fn take_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

/// Takes `count` bytes from the front.
pub(super) fn take_bytes<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(first)
}

/// Encodes a signed difference so that small ones, negative ones too, give small numbers.
#[inline]
pub(super) const fn zigzag(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> 63)) as u64
}

/// Decodes a difference that [`zigzag`] encoded.
pub(super) const fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

macro_rules! number {
    ($($kind:ty),*) => {$(
        impl RecordField<'_> for $kind {
            #[inline]
            fn emit(&self, out: &mut impl ByteSink) {
                out.push_number(u64::from(*self));
            }

            fn parse(bytes: &mut &[u8]) -> Option<$kind> {
                <$kind>::try_from(take_number(bytes)?).ok()
            }
        }
    )*};
}

number!(u16, u32, u64);

impl RecordField<'_> for u8 {
    #[inline]
    fn emit(&self, out: &mut impl ByteSink) {
        out.push_byte(*self);
    }

    fn parse(bytes: &mut &[u8]) -> Option<u8> {
        take_byte(bytes)
    }
}

impl RecordField<'_> for bool {
    #[inline]
    fn emit(&self, out: &mut impl ByteSink) {
        out.push_byte(u8::from(*self));
    }

    fn parse(bytes: &mut &[u8]) -> Option<bool> {
        match take_byte(bytes)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl RecordField<'_> for i32 {
    fn emit(&self, out: &mut impl ByteSink) {
        out.push_number(zigzag(i64::from(*self)));
    }

    fn parse(bytes: &mut &[u8]) -> Option<i32> {
        i32::try_from(unzigzag(take_number(bytes)?)).ok()
    }
}

impl<'a> RecordField<'a> for &'a str {
    fn emit(&self, out: &mut impl ByteSink) {
        let cut = (0..=TEXT_BYTES.min(self.len())).rev().find(|end| self.is_char_boundary(*end));
        let text = self.get(..cut.unwrap_or(0)).unwrap_or_default();
        out.push_number(text.len() as u64);
        if !text.contains(char::is_control) {
            return out.push_bytes(text.as_bytes());
        }
        // A control character is one byte, or two bytes of which the first is 0xc2.
        for part in text.split_inclusive(char::is_control) {
            let kept = part.trim_end_matches(char::is_control);
            out.push_bytes(kept.as_bytes());
            (kept.len()..part.len()).for_each(|_| out.push_byte(b'?'));
        }
    }

    fn parse(bytes: &mut &'a [u8]) -> Option<&'a str> {
        let count = usize::try_from(take_number(bytes)?).ok().filter(|count| *count <= TEXT_BYTES)?;
        let text = std::str::from_utf8(take_bytes(bytes, count)?).ok()?;
        (!text.contains(char::is_control)).then_some(text)
    }
}

impl RecordField<'_> for IpAddr {
    fn emit(&self, out: &mut impl ByteSink) {
        match self {
            IpAddr::V4(address) => {
                out.push_byte(4);
                out.push_bytes(&address.octets());
            }
            IpAddr::V6(address) => {
                out.push_byte(6);
                out.push_bytes(&address.octets());
            }
        }
    }

    fn parse(bytes: &mut &[u8]) -> Option<IpAddr> {
        match take_byte(bytes)? {
            4 => {
                let octets: [u8; 4] = take_bytes(bytes, 4)?.try_into().ok()?;
                Some(Ipv4Addr::from(octets).into())
            }
            6 => {
                let octets: [u8; 16] = take_bytes(bytes, 16)?.try_into().ok()?;
                Some(Ipv6Addr::from(octets).into())
            }
            _ => None,
        }
    }
}

impl<'a, T: RecordField<'a>> RecordField<'a> for Option<T> {
    #[inline]
    fn emit(&self, out: &mut impl ByteSink) {
        out.push_byte(u8::from(self.is_some()));
        if let Some(value) = self {
            value.emit(out);
        }
    }

    fn parse(bytes: &mut &'a [u8]) -> Option<Option<T>> {
        if bool::parse(bytes)? { T::parse(bytes).map(Some) } else { Some(None) }
    }
}
