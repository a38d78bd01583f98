//! Incidents, which a fault plan applies to the device itself, with operations that a device has anyway.
//!
//! Incidents, which a fault plan applies to the device itself: objects fail, a port goes down, addresses
//! move, or an adapter stops.

use std::fmt;

use pumice_platform::link_settings::{LinkSettings, Speed, Width};
use pumice_transport::types::AsyncEventType;
use pumice_transport::wire::Qpn;

use super::details::{
    CQ, DetailField, Details, FIRST_PORT, FOR, GID, LINK, PORT, SPEED, SRQ, TIME, TO, WIDTH,
};
use crate::addresses::gid_table::GidTable;

/// An incident of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Incident {
    /// CQ_ERR: a completion queue fails as by an overrun, and the queue pairs that complete there fail with
    /// it.
    CqError {
        /// Ordinal of the completion queue: the number of those that the process created before.
        cq: u32,
    },
    /// SRQ_LIMIT_REACHED: the limit event of a shared receive queue is raised, and the limit is disarmed.
    SrqLimit {
        /// Ordinal of the shared receive queue: the number of those that the process created before.
        srq: u32,
    },
    /// SRQ_ERR: a shared receive queue neither gives nor takes receives any more, and its queue pairs fail.
    SrqError {
        /// Ordinal of the shared receive queue: the number of those that the process created before.
        srq: u32,
    },
    /// QP_FATAL: the queue pair that sends the packet goes to ERR.
    QpFatal,
    /// QP_ACCESS_ERR: the queue pair that sends the packet goes to ERR.
    QpAccessError,
    /// PATH_MIG_ERR of the queue pair that sends the packet; nothing else changes.
    PathMigrationError,
    /// PORT_ERR: no packet leaves or arrives until PORT_ACTIVE.
    PortDown {
        /// Number of the device's port, from 1.
        port: u8,
        /// Duration, in ns; `None`: without end.
        for_ns: Option<u64>,
    },
    /// PORT_ACTIVE, if the port was down: ends [`Incident::PortDown`] or [`Incident::CablePull`].
    PortUp {
        /// Number of the device's port, from 1.
        port: u8,
    },
    /// The cable is pulled: no packet leaves or arrives, and no event is raised. The port's state stays
    /// ACTIVE.
    CablePull {
        /// Number of the device's port, from 1.
        port: u8,
        /// Duration, in ns; `None`: without end.
        for_ns: Option<u64>,
    },
    /// PORT_ERR and PORT_ACTIVE: the link is retrained with another rate.
    SpeedChange {
        /// Number of the device's port, from 1.
        port: u8,
        /// Rate of a lane; `None`: unchanged.
        speed: Option<Speed>,
        /// Number of lanes; `None`: unchanged.
        width: Option<Width>,
    },
    /// The link settings change, without an event.
    Link {
        /// The settings that change; the others stay.
        words: LinkSettings,
        /// Duration, in ns; `None`: until [`Incident::LinkRestore`].
        for_ns: Option<u64>,
    },
    /// The link settings return to those with which the device was opened.
    LinkRestore,
    /// GID_CHANGE: an address moves to another index in the GID table.
    GidMove {
        /// Number of the device's port, from 1.
        port: u8,
        /// The index before.
        from: u32,
        /// The index from now on; the entry that was there takes the other index.
        to: u32,
    },
    /// The network's addresses lead to another adapter, as when the active part of a bond fails: GID_CHANGE,
    /// and RDMA_CM_EVENT_ADDR_CHANGE of each identifier on the device. Packets continue as before.
    AddrChange {
        /// Number of the device's port, from 1.
        port: u8,
    },
    /// LID_CHANGE; nothing else changes.
    LidChange {
        /// Number of the device's port, from 1.
        port: u8,
    },
    /// PKEY_CHANGE; nothing else changes.
    PkeyChange {
        /// Number of the device's port, from 1.
        port: u8,
    },
    /// The connection of the queue pair is ended: a DREQ leaves, if the connection manager made it.
    Disconnect,
    /// DEVICE_FATAL: the device stops sending, receiving and completing.
    DeviceFatal,
    /// DEVICE_FATAL: the device is unplugged. Its queue pairs are flushed, and what was opened stays dead;
    /// after the given time the device can be opened again.
    Unplug {
        /// Time until the device is back, in ns; `None`: never.
        for_ns: Option<u64>,
    },
    /// The device neither sends, receives nor completes for a time; what arrives meanwhile is lost.
    Freeze {
        /// Duration, in ns.
        for_ns: u64,
    },
}

/// Number of entries of a GID table.
pub const GID_TABLE_LEN: u32 = GidTable::LEN;

/// Declares the kinds of incidents, a row each: the name in plans; the variant of [`Incident`]; whether it
/// happens to the `device` or to the `queue_pair` that sends the packet; the variant's fields, each with the
/// [`DetailPart`](super::details::DetailPart) that it is built from.
macro_rules! kinds {
    (@needs_queue_pair queue_pair) => { true };
    (@needs_queue_pair device) => { false };
    ($($word:literal $variant:ident $at:ident { $($field:ident: $part:ident),* };)*) => {
        /// A kind of incident.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each kind is described at the variant of Incident of this name")]
        pub enum IncidentKind { $($variant),* }

        impl IncidentKind {
            /// All kinds, in the order in which plans list them.
            pub const ALL: &[IncidentKind] = &[$(IncidentKind::$variant),*];
            /// The names of all kinds, each with a comma and a space behind it.
            const LISTED: &str = concat!($($word, ", "),*);

            /// Returns the name of the kind in plans.
            pub const fn word(self) -> &'static str {
                match self { $(IncidentKind::$variant => $word),* }
            }

            /// Returns the fields that a rule of this kind may have.
            pub const fn fields(self) -> &'static [DetailField] {
                match self { $(IncidentKind::$variant => const { &[$($part.field),*] }),* }
            }

            /// Reports whether an incident of this kind happens to the queue pair that sends the packet.
            const fn needs_queue_pair(self) -> bool {
                match self { $(IncidentKind::$variant => kinds!(@needs_queue_pair $at)),* }
            }

            fn build(self, details: &Details) -> Result<Incident, String> {
                match self {
                    $(IncidentKind::$variant => {
                        Ok(Incident::$variant { $($field: ($part.read)(details)?),* })
                    })*
                }
            }
        }

        impl Incident {
            /// Returns the kind of the incident.
            pub const fn kind(&self) -> IncidentKind {
                match self { $(Incident::$variant { .. } => IncidentKind::$variant),* }
            }

            /// Returns the details of the incident.
            pub fn details(&self) -> Details {
                let mut details = Details::default();
                match *self {
                    $(Incident::$variant { $($field),* } => { $(($part.write)(&mut details, $field);)* }),*
                }
                details
            }
        }
    };
}

kinds! {
    "cq-error"        CqError            device     { cq: CQ };
    "srq-limit"       SrqLimit           device     { srq: SRQ };
    "srq-error"       SrqError           device     { srq: SRQ };
    "qp-fatal"        QpFatal            queue_pair {};
    "qp-access-error" QpAccessError      queue_pair {};
    "path-mig-error"  PathMigrationError queue_pair {};
    "port-down"       PortDown           device     { port: PORT, for_ns: TIME };
    "port-up"         PortUp             device     { port: PORT };
    "cable-pull"      CablePull          device     { port: PORT, for_ns: TIME };
    "speed-change"    SpeedChange        device     { port: PORT, speed: SPEED, width: WIDTH };
    "link"            Link               device     { words: LINK, for_ns: TIME };
    "link-restore"    LinkRestore        device     {};
    "gid-move"        GidMove            device     { port: PORT, from: GID, to: TO };
    "addr-change"     AddrChange         device     { port: PORT };
    "lid-change"      LidChange          device     { port: PORT };
    "pkey-change"     PkeyChange         device     { port: PORT };
    "disconnect"      Disconnect         queue_pair {};
    "device-fatal"    DeviceFatal        device     {};
    "unplug"          Unplug             device     { for_ns: TIME };
    "freeze"          Freeze             device     { for_ns: FOR };
}

impl IncidentKind {
    /// The names of all kinds, separated by commas.
    pub const WORDS: &str = Self::LISTED.split_at(Self::LISTED.len() - 2).0;

    /// Reports whether a rule of this kind may have the field of this name.
    pub fn has(self, name: &str) -> bool {
        self.fields().iter().any(|field| field.words().contains(&name))
    }

    /// Returns the kind of a name in plans.
    pub fn of(word: &str) -> Option<IncidentKind> {
        IncidentKind::ALL.iter().copied().find(|kind| kind.word() == word)
    }
}

impl Incident {
    /// Returns the name of the incident's kind in plans.
    pub const fn word(&self) -> &'static str {
        self.kind().word()
    }

    /// Returns how long the incident lasts, in ns, if it ends by itself.
    pub fn lasts_ns(&self) -> Option<u64> {
        self.details().for_ns
    }

    /// Reports whether the incident needs no queue pair.
    pub const fn is_of_device(&self) -> bool {
        !self.kind().needs_queue_pair()
    }

    /// Returns the port that the incident is about, if it is about one.
    pub fn port(&self) -> Option<u8> {
        let has_port = self.kind().fields().contains(&DetailField::Port);
        has_port.then(|| self.details().port.unwrap_or(FIRST_PORT))
    }

    /// Returns the incident of a name and its details; details that the incident does not have are ignored.
    ///
    /// # Errors
    /// No incident has this name, or a detail that it needs is missing or impossible.
    pub fn of(word: &str, details: Details) -> Result<Incident, String> {
        let kind = IncidentKind::of(word);
        let kind = kind
            .ok_or_else(|| format!("{word} is nothing that happens: write one of {}", IncidentKind::WORDS))?;
        let incident = kind.build(&details)?;
        incident.check()?;
        Ok(incident)
    }

    /// Checks the conditions that concern several fields.
    fn check(&self) -> Result<(), String> {
        match *self {
            Incident::SpeedChange { speed: None, width: None, .. } => {
                Err("it does not say which rate: write speed=edr, width=2, or both".to_owned())
            }
            Incident::GidMove { from, to, .. } if from == to || from.max(to) >= GID_TABLE_LEN => {
                Err(format!(
                    "an address cannot move from place {from} to {to}: write different ones below \
                     {GID_TABLE_LEN}"
                ))
            }
            _ => Ok(()),
        }
    }

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

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        let Details { object, to, for_ns, speed, width, port, link } = self.details();
        if let Some(port) = port {
            write!(f, " of port {port}")?;
        }
        if let Some(object) = object {
            write!(f, " {object}")?;
        }
        if let Some(to) = to {
            write!(f, " to {to}")?;
        }
        if let Some(width) = width {
            write!(f, " to {} lanes", width.lanes())?;
        }
        if let Some(speed) = speed {
            write!(f, " to {}", speed.word())?;
        }
        if let Some(link) = link {
            write!(f, " to {link}")?;
        }
        for_ns.map_or(Ok(()), |ns| write!(f, " for {} us", ns / 1000))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_incidents_are_inverses() {
        for word in IncidentKind::ALL.iter().map(|kind| kind.word()) {
            let (speed, width) = (Some(Speed::Hdr), Width::new(2).ok());
            let link = LinkSettings::parse("rate=1Gbit,ingress.ecn=64KiB").ok();
            let (object, to, for_ns, port) = (Some(3), Some(7), Some(5_000), Some(2));
            let details = Details { object, to, for_ns, speed, width, port, link };
            let incident = Incident::of(word, details).unwrap();
            assert_eq!(incident.word(), word);
            assert_eq!(Incident::of(word, incident.details()), Ok(incident));
        }
        let third = Details { port: Some(3), ..Details::default() };
        assert!(Incident::of("port-up", third).unwrap_err().contains("write port=1 or port=2"));
        assert_eq!(Incident::PortDown { port: 2, for_ns: None }.to_string(), "port-down of port 2");
        assert!(Incident::of("gid-move", Details::default()).unwrap_err().contains("write to=5"));
        assert!(Incident::of("freeze", Details::default()).unwrap_err().contains("write time=2s"));
        assert!(Incident::of("speed-change", Details::default()).unwrap_err().contains("write speed=edr"));
        assert!(Incident::of("link", Details::default()).unwrap_err().contains("write rate=1Gbit"));
        assert!(
            Incident::of("port-sideways", Details::default()).unwrap_err().contains("write one of cq-error,")
        );
    }
}
