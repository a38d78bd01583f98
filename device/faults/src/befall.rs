//! How an incident is carried out: by operations that a device has anyway.

use pumice_ground::link_rate::{Speed, Width};
use pumice_ground::link_words::LinkSettings;
use pumice_transport::types::AsyncEventType;
use pumice_transport::wire::Qpn;

use super::incident::Incident;

/// What can befall a device. Times are of the device's clock, in ns; `u64::MAX`: for ever. What befalls an
/// object or a port that the device does not have befalls none.
pub trait Adapter {
    /// The completion queue that was made as number `cq` fails, and the queue pairs that complete there with
    /// it.
    fn fail_cq(&mut self, cq: u32);
    /// The limit of the shared receive queue that was made as number `srq` is reached, and disarmed.
    fn reach_srq_limit(&mut self, srq: u32);
    /// The shared receive queue that was made as number `srq` fails, and its queue pairs with it.
    fn fail_srq(&mut self, srq: u32);
    /// A queue pair goes to ERR, with this event.
    fn end_queue_pair(&mut self, qpn: Qpn, event: AsyncEventType);
    /// An event of a queue pair, and nothing else.
    fn raise_of_queue_pair(&mut self, qpn: Qpn, event: AsyncEventType);
    /// An event of a port, and nothing else.
    fn raise_of_port(&mut self, port: u8, event: AsyncEventType);
    /// A port is down: PORT_ERR now, PORT_ACTIVE then.
    fn take_port_down(&mut self, port: u8, until_ns: u64);
    /// A port is up, and its cable is in.
    fn bring_port_up(&mut self, port: u8);
    /// Nothing passes a port until then, and no event tells of it.
    fn pull_cable(&mut self, port: u8, until_ns: u64);
    /// A link is trained again; what is `None` stays.
    fn train_link(&mut self, port: u8, speed: Option<Speed>, width: Option<Width>);
    /// The link does something else to packets, until then or for good.
    fn change_link(&mut self, words: LinkSettings, until_ns: Option<u64>);
    /// The link is as the device was opened with.
    fn restore_link(&mut self);
    /// Two entries of a port's GID table change their addresses.
    fn move_gid(&mut self, port: u8, from: u32, to: u32);
    /// The network's addresses lead to another adapter.
    fn change_addresses(&mut self, port: u8);
    /// The connection of a queue pair is ended, if the connection manager made it.
    fn disconnect(&mut self, qpn: Qpn, now_ns: u64);
    /// The device does nothing any more.
    fn die(&mut self);
    /// The device is gone, and back at that time.
    fn leave(&mut self, back_ns: u64, now_ns: u64);
    /// The device does nothing until then; what arrives meanwhile is lost.
    fn stand_still(&mut self, until_ns: u64);
}

impl Incident {
    /// It befalls a device now, because of a packet of this queue pair, a call or a time.
    pub fn befall(self, adapter: &mut impl Adapter, qpn: Qpn, now_ns: u64) {
        let end_ns = |for_ns: Option<u64>| for_ns.map_or(u64::MAX, |for_ns| now_ns.saturating_add(for_ns));
        match self {
            Incident::CqError { cq } => adapter.fail_cq(cq),
            Incident::SrqLimit { srq } => adapter.reach_srq_limit(srq),
            Incident::SrqError { srq } => adapter.fail_srq(srq),
            Incident::QpFatal => adapter.end_queue_pair(qpn, AsyncEventType::QpFatal),
            Incident::QpAccessError => adapter.end_queue_pair(qpn, AsyncEventType::QpAccessErr),
            Incident::PathMigrationError => adapter.raise_of_queue_pair(qpn, AsyncEventType::PathMigErr),
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
            Incident::LidChange { port } => adapter.raise_of_port(port, AsyncEventType::LidChange),
            Incident::PkeyChange { port } => adapter.raise_of_port(port, AsyncEventType::PkeyChange),
            Incident::Disconnect => adapter.disconnect(qpn, now_ns),
            Incident::DeviceFatal => adapter.die(),
            Incident::Unplug { for_ns } => adapter.leave(end_ns(for_ns), now_ns),
            Incident::Freeze { for_ns } => adapter.stand_still(now_ns.saturating_add(for_ns)),
        }
    }
}
