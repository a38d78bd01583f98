//! How an incident is applied, with operations that a device has anyway.

use pumice_platform::link_rate::{Speed, Width};
use pumice_platform::link_settings::LinkSettings;
use pumice_transport::types::AsyncEventType;
use pumice_transport::wire::Qpn;

use crate::fates::incident::Incident;

/// The operations through which incidents change a device. Times are of the device's clock, in ns; `u64::MAX`
/// means for ever. An operation on an object or a port that the device does not have does nothing.
pub trait Adapter {
    /// Fails the completion queue with ordinal `cq`, and the queue pairs that complete there.
    fn fail_cq(&mut self, cq: u32);
    /// Raises the limit event of the shared receive queue with ordinal `srq`, and disarms the limit.
    fn raise_srq_limit(&mut self, srq: u32);
    /// Fails the shared receive queue with ordinal `srq`, and its queue pairs.
    fn fail_srq(&mut self, srq: u32);
    /// Moves a queue pair to ERR and raises this event.
    fn end_queue_pair(&mut self, qpn: Qpn, event: AsyncEventType);
    /// Raises an event of a queue pair, and changes nothing else.
    fn raise_qp_async_event(&mut self, qpn: Qpn, event: AsyncEventType);
    /// Raises an event of a port, and changes nothing else.
    fn raise_port_async_event(&mut self, port: u8, event: AsyncEventType);
    /// Takes a port down: raises PORT_ERR now, and PORT_ACTIVE at `until_ns`.
    fn take_port_down(&mut self, port: u8, until_ns: u64);
    /// Brings a port up, and ends [`Adapter::pull_cable`].
    fn bring_port_up(&mut self, port: u8);
    /// Stops all traffic of a port until `until_ns`, without an event.
    fn pull_cable(&mut self, port: u8, until_ns: u64);
    /// Retrains a link to another speed or width; `None` keeps the present one.
    fn train_link(&mut self, port: u8, speed: Option<Speed>, width: Option<Width>);
    /// Changes what the link does to packets, until `until_ns` or for good.
    fn change_link(&mut self, words: LinkSettings, until_ns: Option<u64>);
    /// Restores the link settings with which the device was opened.
    fn restore_link(&mut self);
    /// Swaps the addresses of two entries of a port's GID table.
    fn move_gid(&mut self, port: u8, from: u32, to: u32);
    /// Acts as if the network's addresses led to another adapter.
    fn change_addresses(&mut self, port: u8);
    /// Ends the connection of a queue pair, if the connection manager made it.
    fn disconnect(&mut self, qpn: Qpn, now_ns: u64);
    /// Stops the device for good.
    fn die(&mut self);
    /// Unplugs the device, and plugs it in again at `back_ns`.
    fn leave(&mut self, back_ns: u64, now_ns: u64);
    /// Stops the device until `until_ns`; what arrives meanwhile is lost.
    fn freeze(&mut self, until_ns: u64);
}

impl Incident {
    /// Applies the incident to a device now; `qpn` is the queue pair whose packet caused it, if a packet did.
    pub fn apply(self, adapter: &mut impl Adapter, qpn: Qpn, now_ns: u64) {
        let end_ns = |for_ns: Option<u64>| for_ns.map_or(u64::MAX, |for_ns| now_ns.saturating_add(for_ns));
        match self {
            Incident::CqError { cq } => adapter.fail_cq(cq),
            Incident::SrqLimit { srq } => adapter.raise_srq_limit(srq),
            Incident::SrqError { srq } => adapter.fail_srq(srq),
            Incident::QpFatal => adapter.end_queue_pair(qpn, AsyncEventType::QpFatal),
            Incident::QpAccessError => adapter.end_queue_pair(qpn, AsyncEventType::QpAccessErr),
            Incident::PathMigrationError => adapter.raise_qp_async_event(qpn, AsyncEventType::PathMigErr),
            Incident::PortDown { port, for_ns } => adapter.take_port_down(port, end_ns(for_ns)),
            Incident::PortUp { port } => adapter.bring_port_up(port),
            Incident::CablePull { port, for_ns } => adapter.pull_cable(port, end_ns(for_ns)),
            Incident::SpeedChange { port, speed, width } => adapter.train_link(port, speed, width),
            Incident::Link { words, for_ns } => {
                adapter.change_link(words, for_ns.map(|for_ns| now_ns.saturating_add(for_ns)));
            }
            Incident::LinkRestore => adapter.restore_link(),
            Incident::GidMove { port, from, to } => adapter.move_gid(port, from, to),
            Incident::AddrChange { port } => adapter.change_addresses(port),
            Incident::LidChange { port } => adapter.raise_port_async_event(port, AsyncEventType::LidChange),
            Incident::PkeyChange { port } => adapter.raise_port_async_event(port, AsyncEventType::PkeyChange),
            Incident::Disconnect => adapter.disconnect(qpn, now_ns),
            Incident::DeviceFatal => adapter.die(),
            Incident::Unplug { for_ns } => adapter.leave(end_ns(for_ns), now_ns),
            Incident::Freeze { for_ns } => adapter.freeze(now_ns.saturating_add(for_ns)),
        }
    }
}
