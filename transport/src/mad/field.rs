//! Bit fields of a CM message, at the offsets where the specification's tables have them.

use super::private_data::PrivateData;

/// Bytes of a MAD behind its header.
pub(super) const CM_BYTES: usize = 232;

/// The body of a CM message.
pub(super) type CmBody = [u8; CM_BYTES];

/// A field of up to 64 bits, most significant bit first.
#[derive(Debug, Clone, Copy)]
pub(super) struct MadField {
    first_byte: usize,
    skip: u32,
    bits: u32,
}

impl MadField {
    /// Creates a field of whole bytes.
    pub(super) const fn bytes(offset: usize, length: usize) -> MadField {
        MadField::bits(offset, 0, length as u32 * 8)
    }

    /// Creates a field of bits after the first `skip` bits of the byte at `offset`. Use it in constants only,
    /// so that a field that does not fit does not compile.
    pub(super) const fn bits(offset: usize, skip: u32, bits: u32) -> MadField {
        assert!(skip < 8 && bits > 0 && bits <= 64 && (skip == 0 || skip + bits <= 56));
        let field = MadField { first_byte: offset, skip, bits };
        assert!(offset + field.length() <= CM_BYTES);
        field
    }

    const fn length(self) -> usize {
        (self.skip + self.bits).div_ceil(8) as usize
    }

    /// Returns the number of bits behind the field in its last byte.
    const fn shift(self) -> u32 {
        self.length() as u32 * 8 - self.skip - self.bits
    }

    const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    pub(super) fn read(self, body: &CmBody) -> u64 {
        let bytes = body.iter().skip(self.first_byte).take(self.length());
        let word = bytes.fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        word >> self.shift() & self.mask()
    }

    /// Writes the low bits of the value; bits around the field keep their values.
    pub(super) fn write(self, body: &mut CmBody, value: u64) {
        let value = (value & self.mask()) << self.shift();
        let mask = self.mask() << self.shift();
        let length = self.length();
        for (index, byte) in body.iter_mut().skip(self.first_byte).take(length).enumerate() {
            let shift = (length - 1 - index) as u32 * 8;
            *byte = *byte & !((mask >> shift) as u8) | (value >> shift) as u8;
        }
    }

    pub(super) fn u8(self, body: &CmBody) -> u8 {
        self.read(body) as u8
    }

    pub(super) fn u16(self, body: &CmBody) -> u16 {
        self.read(body) as u16
    }

    pub(super) fn u32(self, body: &CmBody) -> u32 {
        self.read(body) as u32
    }

    pub(super) fn flag(self, body: &CmBody) -> bool {
        self.read(body) != 0
    }
}

/// A run of bytes: a GID, private data.
#[derive(Debug, Clone, Copy)]
pub(super) struct MadBytes<const N: usize>(usize);

impl<const N: usize> MadBytes<N> {
    /// Creates a run of bytes at an offset. Use it in constants only, so that bytes that do not fit do not
    /// compile.
    pub(super) const fn at(offset: usize) -> MadBytes<N> {
        assert!(offset + N <= CM_BYTES);
        MadBytes(offset)
    }

    pub(super) fn read(self, body: &CmBody) -> [u8; N] {
        body.get(self.0..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    pub(super) fn write(self, body: &mut CmBody, bytes: &[u8; N]) {
        if let Some(field) = body.get_mut(self.0..).and_then(|rest| rest.first_chunk_mut()) {
            *field = *bytes;
        }
    }

    pub(super) fn private_data(self, body: &CmBody) -> PrivateData<N> {
        PrivateData(self.read(body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_tables_say_and_leave_their_neighbours_alone() {
        let mut body = [0xff; CM_BYTES];
        const TIMEOUT: MadField = MadField::bits(43, 0, 5);
        const KIND: MadField = MadField::bits(43, 5, 2);
        const FLOW: MadField = MadField::bits(43, 7, 1);
        TIMEOUT.write(&mut body, 20);
        KIND.write(&mut body, 0);
        FLOW.write(&mut body, 0);
        assert_eq!(body[42..45], [0xff, 0xa0, 0xff]);
        assert_eq!((TIMEOUT.u8(&body), KIND.u8(&body), FLOW.flag(&body)), (20, 0, false));

        const LABEL: MadField = MadField::bits(88, 0, 20);
        LABEL.write(&mut body, 0xfff_3255);
        assert_eq!(body[88..92], [0xf3, 0x25, 0x5f, 0xff]);
        assert_eq!(LABEL.u32(&body), 0xf_3255);

        const WIDE: MadField = MadField::bytes(8, 8);
        WIDE.write(&mut body, 0x0102_0304_0506_0708);
        assert_eq!(body[7..17], [0xff, 1, 2, 3, 4, 5, 6, 7, 8, 0xff]);
        assert_eq!(WIDE.read(&body), 0x0102_0304_0506_0708);
    }

    #[test]
    fn bytes_reach_to_the_end() {
        let mut body = [0; CM_BYTES];
        const LAST: MadBytes<4> = MadBytes::at(228);
        LAST.write(&mut body, &[1, 2, 3, 4]);
        assert_eq!(body[227..], [0, 1, 2, 3, 4]);
        assert_eq!(LAST.read(&body), [1, 2, 3, 4]);
    }
}
