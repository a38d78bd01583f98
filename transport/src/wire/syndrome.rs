//! Meaning of the AETH syndrome: ACK with credits, RNR NAK with a timer, NAK with a reason.

/// Reason why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NakCode {
    /// A PSN was skipped; the NAK carries the expected one. The only NAK that is not fatal.
    Sequence = 0,
    /// The request is malformed, out of order, too long or not allowed on this queue pair.
    InvalidRequest = 1,
    /// Key, range or rights of the remote memory are wrong.
    RemoteAccess = 2,
    /// The responder could not finish for an internal reason.
    RemoteOperation = 3,
    /// An error of reliable datagrams; some XRC hardware reports an XRC violation with it.
    InvalidReadRequest = 4,
}

/// A decoded syndrome byte. Decoding and encoding are inverse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// All packets up to and including the PSN were accepted.
    Ack {
        /// Credit code, five bits; see [`credits`].
        credit_code: u8,
    },
    /// The receiver is not ready: ask again no sooner than after the timer.
    RnrNak {
        /// Timer code, five bits; see [`rnr_timer_ns`].
        timer_code: u8,
    },
    /// The request was refused.
    Nak(NakCode),
    /// A value without meaning, to be ignored.
    Reserved(u8),
}

impl Syndrome {
    /// An ACK without flow control: the sender may send without limit.
    pub const ACK_UNLIMITED: Syndrome = Syndrome::Ack { credit_code: 0x1f };

    /// Decodes the byte.
    pub const fn from_byte(byte: u8) -> Syndrome {
        let value = byte & 0x1f;
        match (byte >> 5, value) {
            //= linux:rxe_comp.c#check_ack
            //| The upper three bits of the syndrome tell ACK, RNR NAK and NAK apart.
            (0, _) => Syndrome::Ack { credit_code: value },
            (1, _) => Syndrome::RnrNak { timer_code: value },
            (3, 0) => Syndrome::Nak(NakCode::Sequence),
            (3, 1) => Syndrome::Nak(NakCode::InvalidRequest),
            (3, 2) => Syndrome::Nak(NakCode::RemoteAccess),
            (3, 3) => Syndrome::Nak(NakCode::RemoteOperation),
            (3, 4) => Syndrome::Nak(NakCode::InvalidReadRequest),
            _ => Syndrome::Reserved(byte),
        }
    }

    /// Encodes to the byte; codes are cut to five bits.
    pub const fn byte(self) -> u8 {
        match self {
            Syndrome::Ack { credit_code } => credit_code & 0x1f,
            Syndrome::RnrNak { timer_code } => 0x20 | (timer_code & 0x1f),
            Syndrome::Nak(code) => 0x60 | code as u8,
            Syndrome::Reserved(byte) => byte,
        }
    }
}

/// Returns the nanoseconds of an RNR timer code; only its low five bits count. Code 0 is the longest: 655.36
/// ms.
pub const fn rnr_timer_ns(code: u8) -> u64 {
    // The table is in units of 10 µs: powers of two and the values half way between them.
    let units: u64 = match code & 0x1f {
        //= statement:22
        //| The RNR code 0 is the longest time, and the code 1 is the shortest.
        0 => 1 << 16,
        1 => 1,
        code if code % 2 == 0 => 1 << (code / 2),
        code => 3 << (code / 2 - 1),
    };
    units * 10_000
}

/// Returns the number of receive requests that a credit code announces; only its low five bits count. `None`
/// for 0x1f: there is no flow control.
pub const fn credits(code: u8) -> Option<u32> {
    match code & 0x1f {
        0x1f => None,
        code @ 0..=4 => Some(code as u32),
        code if code % 2 == 1 => Some(3 << ((code - 3) / 2)),
        code => Some(1 << (code / 2)),
    }
}

/// Returns the nanoseconds of a queue pair's `timeout` attribute, 4096 ns · 2^timeout; only its low five bits
/// count. `None` for 0: wait for ever.
pub const fn transport_timer_ns(timeout: u8) -> Option<u64> {
    match timeout & 0x1f {
        //= statement:24
        //| The timeout 0 never expires.
        0 => None,
        //= linux:rxe_qp.c#rxe_qp_from_attr
        //| The transport timer is 4.096 microseconds, doubled as often as the timeout says.
        exponent => Some(4096 << exponent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_round_trips_and_lands_in_its_class() {
        for byte in 0..=255u8 {
            let syndrome = Syndrome::from_byte(byte);
            assert_eq!(syndrome.byte(), byte);
            match byte {
                0x00..=0x1f => assert_eq!(syndrome, Syndrome::Ack { credit_code: byte }),
                0x20..=0x3f => assert_eq!(syndrome, Syndrome::RnrNak { timer_code: byte - 0x20 }),
                0x60..=0x64 => assert!(matches!(syndrome, Syndrome::Nak(code) if code as u8 == byte - 0x60)),
                _ => assert_eq!(syndrome, Syndrome::Reserved(byte)),
            }
        }
        assert_eq!(Syndrome::ACK_UNLIMITED.byte(), 0x1f);
        assert_eq!(Syndrome::Nak(NakCode::RemoteAccess).byte(), 0x62);
    }

    #[test]
    fn rnr_timers() {
        let hundredths_of_ms = [
            65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
            2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
        ];
        for (code, expected) in (0u8..).zip(hundredths_of_ms) {
            assert_eq!(rnr_timer_ns(code), expected * 10_000, "code {code}");
            assert_eq!(rnr_timer_ns(code | 0xe0), expected * 10_000, "code {code} with excess bits");
        }
    }

    #[test]
    fn credit_codes() {
        let expected = [
            0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
            3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
        ];
        for (code, expected) in (0u8..).zip(expected) {
            assert_eq!(credits(code), Some(expected), "code {code}");
        }
        assert_eq!(credits(0x1f), None);
    }

    #[test]
    fn transport_timers() {
        assert_eq!(transport_timer_ns(0), None);
        assert_eq!(transport_timer_ns(1), Some(8192));
        assert_eq!(transport_timer_ns(14), Some(67_108_864));
        assert_eq!(transport_timer_ns(31), Some(4096 << 31));
        assert_eq!(transport_timer_ns(32), None);
    }
}
