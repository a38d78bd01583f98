//! Transport services: one row of properties each. A new service needs a row here, its opcodes, and a row for
//! each type of queue pairs that has it (`types/queue_pair.rs`).

/// Transport service; discriminants are the upper three bits of the opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Reliable datagram: does not exist on RoCE.
    Rd = 2,
    /// Unreliable datagram.
    Ud = 3,
    /// Congestion notification.
    Cnp = 4,
    /// Extended reliable connection.
    Xrc = 5,
    /// Opcodes 0xc0…0xff: reserved, or defined by a manufacturer.
    Reserved = 6,
}

/// Properties of a transport service.
#[derive(Debug, Clone, Copy)]
pub struct ServiceRow {
    /// The service.
    pub service: Service,
    /// Name of the service in the specification.
    pub name: &'static str,
    /// True if packets carry messages of queue pairs.
    pub has_messages: bool,
    /// True if packets are acknowledged, and sent again until they are.
    pub is_reliable: bool,
    /// True if the queue pair names its peer; otherwise each request does.
    pub is_connected: bool,
    /// True if requests name the shared receive queue that they are for.
    pub names_srq: bool,
}

const fn row(service: Service, name: &'static str, is: [bool; 4]) -> ServiceRow {
    let [has_messages, is_reliable, is_connected, names_srq] = is;
    ServiceRow { service, name, has_messages, is_reliable, is_connected, names_srq }
}

/// The table of all services, by their numbers on the wire. The columns: messages, reliable, connected, names
/// an SRQ.
pub const SERVICES: [ServiceRow; 7] = [
    row(Service::Rc, "RC", [true, true, true, false]),
    row(Service::Uc, "UC", [true, false, true, false]),
    row(Service::Rd, "RD", [false, true, false, false]),
    row(Service::Ud, "UD", [true, false, false, false]),
    row(Service::Cnp, "CNP", [false, false, true, false]),
    row(Service::Xrc, "XRC", [true, true, true, true]),
    row(Service::Reserved, "", [false, false, false, false]),
];

/// Returns a column of the table as bits by number, so that a question costs a shift and no load.
#[expect(clippy::indexing_slicing, reason = "evaluated when this is compiled")]
const fn bits(column: usize) -> u8 {
    let (mut bits, mut index) = (0, 0);
    while index < SERVICES.len() {
        let row = &SERVICES[index];
        let is = [row.has_messages, row.is_reliable, row.is_connected, row.names_srq];
        bits |= (is[column] as u8) << row.service as u8;
        index += 1;
    }
    bits
}

const HAS_MESSAGES: u8 = bits(0);
const RELIABLE: u8 = bits(1);
const CONNECTED: u8 = bits(2);
const NAMES_SRQ: u8 = bits(3);

impl Service {
    /// Returns the service with this number; all from 6 on are reserved.
    #[inline]
    pub const fn of_number(number: u8) -> Service {
        match number {
            0 => Service::Rc,
            1 => Service::Uc,
            2 => Service::Rd,
            3 => Service::Ud,
            4 => Service::Cnp,
            5 => Service::Xrc,
            _ => Service::Reserved,
        }
    }

    #[inline]
    const fn is(self, column: u8) -> bool {
        column >> self as u8 & 1 != 0
    }

    /// Reports whether packets carry messages of queue pairs.
    #[inline]
    pub const fn has_messages(self) -> bool {
        self.is(HAS_MESSAGES)
    }

    /// Reports whether packets are acknowledged, and sent again until they are.
    #[inline]
    pub const fn is_reliable(self) -> bool {
        self.is(RELIABLE)
    }

    /// Reports whether the queue pair names its peer.
    #[inline]
    pub const fn is_connected(self) -> bool {
        self.is(CONNECTED)
    }

    /// Reports whether each request names its peer.
    #[inline]
    pub const fn is_datagram(self) -> bool {
        self.has_messages() && !self.is_connected()
    }

    /// Reports whether packets are sent once: a message ends when it has left.
    #[inline]
    pub const fn is_sent_once(self) -> bool {
        self.has_messages() && !self.is_reliable()
    }

    /// Reports whether requests name the shared receive queue that they are for.
    #[inline]
    pub const fn names_srq(self) -> bool {
        self.is(NAMES_SRQ)
    }

    /// Reports whether packets are congestion notifications, which have no PSN.
    #[inline]
    pub const fn is_notification(self) -> bool {
        matches!(self, Service::Cnp)
    }

    /// Returns the name in the specification; empty if the service is reserved.
    #[expect(clippy::indexing_slicing, reason = "a row for each number, as a test checks")]
    pub const fn name(self) -> &'static str {
        SERVICES[self as usize].name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_has_the_row_of_its_number() {
        for (number, row) in SERVICES.iter().enumerate() {
            assert_eq!(row.service as usize, number, "{}", row.name);
            assert_eq!(Service::of_number(number as u8), row.service);
            let is = (row.has_messages, row.is_reliable, row.is_connected, row.names_srq);
            let service = row.service;
            let said =
                (service.has_messages(), service.is_reliable(), service.is_connected(), service.names_srq());
            assert_eq!((is, service.name()), (said, row.name));
        }
        assert_eq!(Service::of_number(7), Service::Reserved);
    }
}
