//! Service ids, which name the service that a request is for. RDMA-CM makes them of a port space and a port.

use core::fmt;

/// A service id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ServiceId(pub u64);

/// The port spaces of RDMA-CM; discriminants are those of its API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum PortSpace {
    /// IP over InfiniBand (datagrams).
    IpoIb = 0x0002,
    /// Connections (`RDMA_PS_TCP`).
    Tcp = 0x0106,
    /// Datagrams (`RDMA_PS_UDP`).
    Udp = 0x0111,
    /// InfiniBand's own port space.
    Ib = 0x013f,
}

impl PortSpace {
    /// All port spaces.
    pub const ALL: [PortSpace; 4] = [PortSpace::IpoIb, PortSpace::Tcp, PortSpace::Udp, PortSpace::Ib];

    /// Returns the port space with this number.
    pub fn from_number(number: u16) -> Option<PortSpace> {
        PortSpace::ALL.into_iter().find(|space| *space as u16 == number)
    }
}

impl ServiceId {
    /// Mask of the bits of a service id that name the port space of RDMA-CM.
    pub const PORT_SPACE_MASK: u64 = !0xffff;

    /// Returns the service id of a port.
    pub const fn rdma_cm(space: PortSpace, port: u16) -> ServiceId {
        //= linux:cma.c#rdma_get_service_id
        //| The service ID of RDMA-CM is the port space followed by the port.
        ServiceId((space as u64) << 16 | port as u64)
    }

    /// Returns port space and port, if this is a service id of RDMA-CM.
    pub fn to_rdma_cm(self) -> Option<(PortSpace, u16)> {
        let space = u16::try_from(self.0 >> 16).ok().and_then(PortSpace::from_number)?;
        Some((space, self.0 as u16))
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_rdma_cm() {
            Some((space, port)) => write!(f, "{space:?} port {port}"),
            None => write!(f, "{:#018x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn golden_numbers() {
        assert_eq!(ServiceId::rdma_cm(PortSpace::Tcp, 0x1234).0, 0x0106_1234);
        assert_eq!(ServiceId::rdma_cm(PortSpace::Udp, 0x1234).0, 0x0111_1234);
        assert_eq!(ServiceId(0x013f_0007).to_rdma_cm(), Some((PortSpace::Ib, 7)));
        assert_eq!(ServiceId(0x0002_0007).to_rdma_cm(), Some((PortSpace::IpoIb, 7)));
        assert_eq!(ServiceId(0x0107_0007).to_rdma_cm(), None);
        assert_eq!(ServiceId(0x1_0000_0106_0007).to_rdma_cm(), None);
    }

    #[test]
    fn they_print_as_people_know_them() {
        assert_eq!(ServiceId(0x0106_1c06).to_string(), "Tcp port 7174");
        assert_eq!(ServiceId(7).to_string(), "0x0000000000000007");
    }
}
