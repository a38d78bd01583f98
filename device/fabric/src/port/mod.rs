//! What every port does, what it carries, and the ports around a port.

pub(crate) mod two_ports;
