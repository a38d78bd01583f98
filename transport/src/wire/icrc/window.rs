//! Recovery of the IPv4 identification with which an ICRC would be correct, by dividing polynomials over
//! GF(2) modulo the CRC's.

/// Outcome of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IcrcVerdict {
    /// The ICRC is correct for the predicted identification or for 0, or over IPv6.
    Exact,
    /// The ICRC is correct for this identification, which the caller did not predict.
    Recovered {
        /// IPv4 identification of the sender.
        ip_id: u16,
    },
    /// The ICRC is wrong: drop the packet.
    Bad,
}

/// Bytes from the start of the window to the end of the CRC's input, beyond the packet's length: 16 of the
/// IPv4 header from the identification on and 8 of UDP, without the 4 of the packet's ICRC.
pub(super) const WINDOW_TO_UDP_PAYLOAD: usize = 20;

/// Explains a difference between computed and received CRC by another identification, if one can.
pub(super) fn recover(is_ipv4: bool, assumed_id: u16, difference: u32, window_bytes: usize) -> IcrcVerdict {
    if !is_ipv4 {
        return IcrcVerdict::Bad;
    }
    let Some(inverse) = inverse_power(window_bytes) else { return IcrcVerdict::Bad };
    let window = multiply(difference, inverse);
    //= statement:3
    //| Only the identification may differ: the flags and the fragment offset are as assumed.
    if window & 0xffff_0000 != 0 {
        return IcrcVerdict::Bad;
    }
    match assumed_id ^ (window as u16).swap_bytes() {
        0 => IcrcVerdict::Exact,
        ip_id => IcrcVerdict::Recovered { ip_id },
    }
}

/// The CRC's polynomial, reflected: bit 31 is the coefficient of x^0.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// Table of x^(−8·4·i) for every i: a window that begins `4·i` bytes before the end of the stream. Enough for
/// UDP payloads of 9216 bytes, in 9.2 KB.
#[expect(clippy::indexing_slicing, reason = "evaluated when this is compiled")]
static INVERSE_POWERS: [u32; (9216 + WINDOW_TO_UDP_PAYLOAD) / 4 + 1] = {
    let mut table = [0x8000_0000; (9216 + WINDOW_TO_UDP_PAYLOAD) / 4 + 1];
    let mut index = 1;
    while index < table.len() {
        let mut power = table[index - 1];
        let mut step = 0;
        while step < 32 {
            power = divide_by_x(power);
            step += 1;
        }
        table[index] = power;
        index += 1;
    }
    table
};

/// Returns x^(−8k); `None` for a k that no packet has: not a multiple of 4, or too long.
pub(super) fn inverse_power(k: usize) -> Option<u32> {
    if !k.is_multiple_of(4) {
        return None;
    }
    INVERSE_POWERS.get(k / 4).copied()
}

pub(super) const fn divide_by_x(a: u32) -> u32 {
    if a & 0x8000_0000 != 0 { (a ^ POLYNOMIAL) << 1 | 1 } else { a << 1 }
}

/// Multiplies two polynomials, without branches on the operands.
pub(super) const fn multiply(mut a: u32, b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        product ^= a & (b >> bit & 1).wrapping_neg();
        a = a >> 1 ^ POLYNOMIAL & (a & 1).wrapping_neg();
    }
    product
}
