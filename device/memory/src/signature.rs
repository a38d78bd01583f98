//! The fields that protect blocks of data: T10-DIF, and CRCs. Their bytes are in network order.

use pumice_transport::types::{BlockSignature, SignedBlocks};

/// A field; those of four bytes leave the rest 0.
pub(super) type SignatureField = [u8; 8];

/// The part of a field that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignaturePart {
    /// The guard, which is calculated from the data.
    Guard,
    /// The application tag of T10-DIF.
    AppTag,
    /// The reference tag of T10-DIF.
    RefTag,
}

/// A block whose field does not fit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignatureError {
    /// The part of the field.
    pub part: SignaturePart,
    /// Value that is calculated from the data.
    pub calculated: u64,
    /// Value in the field.
    pub found: u64,
    /// Offset of the block, in bytes of data.
    pub offset: u64,
}

/// Returns a table of the remainders of each byte, for a CRC whose bits are reflected.
#[expect(clippy::indexing_slicing, reason = "a constant: an index beyond the table would not compile")]
const fn reflected(polynomial: u64) -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = (byte as u64, 0);
        while bit < 8 {
            value = if value & 1 != 0 { value >> 1 ^ polynomial } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

/// Returns a table for T10-DIF's CRC, whose bits are not reflected.
#[expect(clippy::indexing_slicing, reason = "a constant: an index beyond the table would not compile")]
const fn of_t10() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            value = if value & 0x8000 != 0 { value << 1 ^ 0x8bb7 } else { value << 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

const CRC32: [u64; 256] = reflected(0xedb8_8320);
const CRC32C: [u64; 256] = reflected(0x82f6_3b78);
const CRC64: [u64; 256] = reflected(0x9a6c_9329_ac4b_c9b5);
const T10: [u16; 256] = of_t10();

/// Computes a reflected CRC over the data, from a seed, without its last inversion.
fn crc(table: &[u64; 256], seed: u64, data: &[u8]) -> u64 {
    data.iter().fold(seed, |crc, byte| {
        let entry = table.get(usize::from(crc as u8 ^ byte)).copied().unwrap_or(0);
        entry ^ crc >> 8
    })
}

fn t10_crc(seed: u16, data: &[u8]) -> u16 {
    data.iter().fold(seed, |crc, byte| {
        let entry = T10.get(usize::from((crc >> 8) as u8 ^ byte)).copied().unwrap_or(0);
        entry ^ crc << 8
    })
}

/// Computes the checksum of IP, from a seed.
fn checksum(seed: u16, data: &[u8]) -> u16 {
    let words = data.chunks(2).map(|pair| match pair {
        [high, low] => u64::from(u16::from_be_bytes([*high, *low])),
        [high] => u64::from(*high) << 8,
        _ => 0,
    });
    let mut sum = words.sum::<u64>() + u64::from(seed);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns the field of a block, which is the `index`-th.
pub(super) fn field_of(blocks: &SignedBlocks, index: u64, data: &[u8]) -> SignatureField {
    let short = |crc: u32| {
        let [a, b, c, d] = crc.to_be_bytes();
        [a, b, c, d, 0, 0, 0, 0]
    };
    match blocks.signature {
        BlockSignature::Crc32 { seed } => short(!crc(&CRC32, seed.into(), data) as u32),
        BlockSignature::Crc32c { seed } => short(!crc(&CRC32C, seed.into(), data) as u32),
        BlockSignature::Crc64 { seed } => (!crc(&CRC64, seed, data)).to_be_bytes(),
        BlockSignature::T10Dif { is_checksum, seed, app_tag, ref_tag, counts, .. } => {
            let guard = if is_checksum { checksum(seed, data) } else { t10_crc(seed, data) };
            let ref_tag = if counts { ref_tag.wrapping_add(index as u32) } else { ref_tag };
            let tags = u64::from(guard) << 48 | u64::from(app_tag) << 32 | u64::from(ref_tag);
            tags.to_be_bytes()
        }
    }
}

/// Merges two fields: the bytes that a mask has a bit for from the first, and the others from the second.
pub(super) fn merged(mask: u8, these: SignatureField, others: SignatureField) -> SignatureField {
    let mut merged = others;
    for (index, (byte, this)) in merged.iter_mut().zip(these).enumerate() {
        if mask & 0x80 >> index != 0 {
            *byte = this;
        }
    }
    merged
}

/// Returns the error of a field that was found behind a block, among the bytes that the mask has a bit for.
pub(super) fn check(
    blocks: &SignedBlocks,
    mask: u8,
    offset: u64,
    (calculated, found): (SignatureField, SignatureField),
) -> Option<SignatureError> {
    let number = |field: SignatureField, first: usize, bytes: usize| {
        let part = field.get(first..first + bytes).unwrap_or_default();
        part.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    let wrong = |part, first, bytes| {
        let differs = merged(mask, found, calculated);
        let (is, should) = (number(differs, first, bytes), number(calculated, first, bytes));
        (is != should).then(|| SignatureError {
            part,
            calculated: should,
            found: number(found, first, bytes),
            offset,
        })
    };
    let BlockSignature::T10Dif { app_escapes, tags_escape, .. } = blocks.signature else {
        return wrong(SignaturePart::Guard, 0, blocks.signature.field_bytes() as usize);
    };
    let (app_tag, ref_tag) = (number(found, 2, 2), number(found, 4, 4));
    let escapes = app_tag == 0xffff && (app_escapes || tags_escape && ref_tag == 0xffff_ffff);
    if escapes {
        return None;
    }
    wrong(SignaturePart::Guard, 0, 2)
        .or_else(|| wrong(SignaturePart::AppTag, 2, 2))
        .or_else(|| wrong(SignaturePart::RefTag, 4, 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &[u8] = b"123456789";

    fn blocks(signature: BlockSignature) -> SignedBlocks {
        SignedBlocks { block_bytes: 512, signature }
    }

    fn t10(is_checksum: bool, seed: u16) -> BlockSignature {
        BlockSignature::T10Dif {
            is_checksum,
            seed,
            app_tag: 0xabcd,
            ref_tag: 0xffff_ffff,
            counts: true,
            app_escapes: false,
            tags_escape: false,
        }
    }

    /// Checks the fields of nine digits, for which catalogues of CRCs give the values.
    #[test]
    fn fields_are_those_that_the_standards_give_for_the_digits() {
        let field = |signature| field_of(&blocks(signature), 0, DIGITS);
        assert_eq!(field(BlockSignature::Crc32 { seed: u32::MAX })[..4], 0xcbf4_3926_u32.to_be_bytes());
        assert_eq!(field(BlockSignature::Crc32c { seed: u32::MAX })[..4], 0xe306_9283_u32.to_be_bytes());
        assert_eq!(field(BlockSignature::Crc64 { seed: u64::MAX }), 0xae8b_1486_0a79_9888_u64.to_be_bytes());
        assert_eq!(field(t10(false, 0)), [0xd0, 0xdb, 0xab, 0xcd, 0xff, 0xff, 0xff, 0xff]);
        // RFC 1071: 0001 f203 f4f5 f6f7 add up to ddf2.
        let words = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        let sum = field_of(&blocks(t10(true, 0xffff)), 0, &words);
        assert_eq!(sum[..2], (!0xddf2_u16).to_be_bytes());
    }

    #[test]
    fn zeros_from_a_seed_of_zero_have_another_crc_than_zero() {
        assert_eq!(field_of(&blocks(BlockSignature::Crc32 { seed: 0 }), 0, &[0; 512])[..4], [0xff; 4]);
    }

    #[test]
    fn reference_tags_count_blocks() {
        let tag = |index| field_of(&blocks(t10(false, 0)), index, DIGITS)[4..].to_vec();
        assert_eq!((tag(0), tag(1), tag(2)), (vec![0xff; 4], vec![0; 4], vec![0, 0, 0, 1]));
    }

    #[test]
    fn the_first_wrong_part_that_the_mask_names_is_told() {
        let right = field_of(&blocks(t10(false, 0)), 0, DIGITS);
        let look = |signature, mask, wrong: &[usize]| {
            let mut found = right;
            wrong.iter().for_each(|index| found[*index] ^= 1);
            check(&blocks(signature), mask, 1024, (right, found)).map(|error| error.part)
        };
        use SignaturePart::{AppTag, Guard, RefTag};
        let plain = t10(false, 0);
        assert_eq!(look(plain, 0xff, &[]), None);
        for (mask, wrong, part) in [
            (0xff, &[0, 2, 7][..], Some(Guard)),
            (0xff, &[3, 5], Some(AppTag)),
            (0xff, &[7], Some(RefTag)),
            (0x3f, &[0, 1], None),
            (0x0f, &[0, 2, 4], Some(RefTag)),
            (0xfe, &[7], None),
        ] {
            assert_eq!(look(plain, mask, wrong), part, "{mask:#x} {wrong:?}");
        }
        let error = check(&blocks(plain), 0xff, 1024, (right, [0; 8])).unwrap();
        assert_eq!((error.calculated, error.found, error.offset), (0xd0db, 0, 1024));
        let escape = |app_escapes, tags_escape, found| {
            let BlockSignature::T10Dif { is_checksum, seed, app_tag, ref_tag, counts, .. } = plain else {
                unreachable!("it was made so");
            };
            let signature = BlockSignature::T10Dif {
                is_checksum,
                seed,
                app_tag,
                ref_tag,
                counts,
                app_escapes,
                tags_escape,
            };
            check(&blocks(signature), 0xff, 0, (right, found)).is_none()
        };
        let (all, app) = ([0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], [0, 0, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!((escape(true, false, app), escape(false, true, app)), (true, false));
        assert_eq!((escape(false, true, all), escape(false, false, all)), (true, false));
    }

    #[test]
    fn bytes_of_a_mask_come_from_the_first_field() {
        assert_eq!(merged(0b1000_0001, [1; 8], [2; 8]), [1, 2, 2, 2, 2, 2, 2, 1]);
    }
}
