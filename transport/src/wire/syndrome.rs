//! AETH syndromes, and the tables of timers and credits.

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum NakCode {
    /// PSN sequence error: a gap.
    Sequence = 0,
    /// Invalid request.
    InvalidRequest = 1,
    /// Remote access error.
    RemoteAccess = 2,
    /// Remote operational error.
    RemoteOperation = 3,
    /// Invalid RD request; on XRC: no such SRQ.
    InvalidReadRequest = 4,
}

/// Syndrome byte of an AETH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syndrome {
    /// Acknowledge, with a credit code of 5 bits.
    Ack {
        /// See [`credits`].
        credit_code: u8,
    },
    /// Receiver not ready, with a timer code of 5 bits.
    RnrNak {
        /// See [`rnr_timer_ns`].
        timer_code: u8,
    },
    /// Negative acknowledge.
    Nak(NakCode),
    /// A value without meaning: to be ignored.
    Reserved(u8),
}

impl Syndrome {
    /// ACK without flow control.
    pub const ACK_UNLIMITED: Syndrome = Syndrome::Ack { credit_code: 0x1f };

    /// The meaning of a syndrome byte.
    pub const fn from_byte(byte: u8) -> Syndrome {
        let low = byte & 0x1f;
        match (byte >> 5, low) {
            (0, _) => Syndrome::Ack { credit_code: low },
            (1, _) => Syndrome::RnrNak { timer_code: low },
            (3, 0) => Syndrome::Nak(NakCode::Sequence),
            (3, 1) => Syndrome::Nak(NakCode::InvalidRequest),
            (3, 2) => Syndrome::Nak(NakCode::RemoteAccess),
            (3, 3) => Syndrome::Nak(NakCode::RemoteOperation),
            (3, 4) => Syndrome::Nak(NakCode::InvalidReadRequest),
            _ => Syndrome::Reserved(byte),
        }
    }

    /// The byte.
    pub const fn byte(self) -> u8 {
        match self {
            Syndrome::Ack { credit_code } => credit_code & 0x1f,
            Syndrome::RnrNak { timer_code } => 0x20 | timer_code & 0x1f,
            Syndrome::Nak(code) => 0x60 | code as u8,
            Syndrome::Reserved(byte) => byte,
        }
    }
}

/// RNR timers in units of 10 µs, by code. Code 0 is the longest.
const RNR_TIMERS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Least wait in ns that an RNR NAK's timer code asks for; the low 5 bits count.
pub const fn rnr_timer_ns(code: u8) -> u64 {
    RNR_TIMERS[(code & 0x1f) as usize] as u64 * 10_000
}

/// Receive requests advertised by a credit code; `None`: no flow control.
pub const fn credits(code: u8) -> Option<u32> {
    match code & 0x1f {
        0x1f => None,
        code @ 0..=3 => Some(code as u32),
        // From there on the codes go 4, 6, 8, 12, 16, 24 …
        code if code % 2 == 0 => Some(1 << (code / 2)),
        code => Some(3 << (code / 2 - 1)),
    }
}

/// Transport timer in ns of an ACK timeout exponent; 0 never expires. The low 5 bits count.
pub const fn transport_timer_ns(timeout: u8) -> Option<u64> {
    match timeout & 0x1f {
        0 => None,
        exponent => Some(4096 << exponent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syndrome_bytes_are_inverses() {
        for byte in 0..=255 {
            assert_eq!(Syndrome::from_byte(byte).byte(), byte);
        }
    }

    #[test]
    fn timers_and_credits_are_those_of_the_tables() {
        assert_eq!(rnr_timer_ns(0), 655_360_000);
        assert_eq!(rnr_timer_ns(1), 10_000);
        assert_eq!(rnr_timer_ns(25), 61_440_000);
        assert_eq!(rnr_timer_ns(31), 491_520_000);
        let expected = [
            0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
            3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
        ];
        for (code, count) in expected.into_iter().enumerate() {
            assert_eq!(credits(code as u8), Some(count), "code {code:#x}");
        }
        assert_eq!(credits(0x1f), None);
        assert_eq!(transport_timer_ns(0), None);
        assert_eq!(transport_timer_ns(14), Some(67_108_864));
    }
}
