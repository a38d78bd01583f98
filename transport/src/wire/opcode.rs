//! Opcodes: a transport service in the upper three bits, an operation in the lower five.

use super::{Operation, Service};

/// An opcode byte, known or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(u8);

impl Opcode {
    /// Creates the opcode of any byte; [`Opcode::info`] says whether it is a known one.
    #[inline]
    pub const fn from_byte(byte: u8) -> Opcode {
        Opcode(byte)
    }

    /// Returns the byte on the wire.
    #[inline]
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// Returns the opcode of an operation on a service. Not every combination exists: see [`Opcode::info`].
    #[inline]
    pub const fn new(service: Service, operation: Operation) -> Opcode {
        Opcode((service as u8) << 5 | (operation as u8 & 0x1f))
    }

    /// Returns the transport service in the upper three bits, also of unknown operations.
    #[inline]
    pub const fn service(self) -> Service {
        Service::of_number(self.0 >> 5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_byte_prints_and_has_a_service() {
        assert_eq!(Opcode::from_byte(0x00).to_string(), "RC_SEND_FIRST");
        assert_eq!(Opcode::from_byte(0xab).to_string(), "XRC_RDMA_WRITE_ONLY_IMM");
        assert_eq!(Opcode::from_byte(0x81).to_string(), "CNP");
        assert_eq!(Opcode::from_byte(0x15).to_string(), "opcode 0x15");
        let services = [
            Service::Rc,
            Service::Uc,
            Service::Rd,
            Service::Ud,
            Service::Cnp,
            Service::Xrc,
            Service::Reserved,
            Service::Reserved,
        ];
        for byte in 0..=255u8 {
            assert_eq!(Opcode::from_byte(byte).service(), services[byte as usize / 32]);
        }
        assert_eq!(Opcode::new(Service::Cnp, Operation::Cnp).byte(), 0x81);
        assert_eq!(Opcode::new(Service::Xrc, Operation::SendOnlyInvalidate).byte(), 0xb7);
    }
}
