//! What happens to the device itself by a fault plan: objects that fail, a port that goes down, addresses
//! that move, an adapter that stops.

use std::fmt;

use pumice_ground::link_rate::{Speed, Width};
use pumice_ground::link_words::LinkSettings;
use pumice_transport::wire::Qpn;

/// Something that happens to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Incident {
    /// CQ_ERR: a completion queue fails as by an overrun, and the queue pairs that complete there with it.
    CqError {
        /// Completion queues that the process had made before.
        cq: u32,
    },
    /// SRQ_LIMIT_REACHED, and the limit is disarmed.
    SrqLimit {
        /// Shared receive queues that the process had made before.
        srq: u32,
    },
    /// SRQ_ERR: a shared receive queue gives and takes nothing any more, and its queue pairs fail.
    SrqError {
        /// Shared receive queues that the process had made before.
        srq: u32,
    },
    /// QP_FATAL: the queue pair that sends the packet goes to ERR.
    QpFatal,
    /// QP_ACCESS_ERR: the queue pair that sends the packet goes to ERR.
    QpAccessError,
    /// PATH_MIG_ERR of the queue pair that sends the packet, and nothing else.
    PathMigrationError,
    /// PORT_ERR: nothing leaves and nothing arrives, until PORT_ACTIVE.
    PortDown {
        /// Which port of the device, from 1.
        port: u8,
        /// For so long; `None`: for ever.
        for_ns: Option<u64>,
    },
    /// PORT_ACTIVE, if the port was down: what [`Incident::PortDown`] or [`Incident::CablePull`] began ends.
    PortUp {
        /// Which port of the device, from 1.
        port: u8,
    },
    /// Nothing leaves and nothing arrives, and no event tells of it: the port's state stays ACTIVE.
    CablePull {
        /// Which port of the device, from 1.
        port: u8,
        /// For so long; `None`: for ever.
        for_ns: Option<u64>,
    },
    /// PORT_ERR and PORT_ACTIVE: the link was trained again, and says another rate from now on.
    SpeedChange {
        /// Which port of the device, from 1.
        port: u8,
        /// Rate of a lane; `None`: as before.
        speed: Option<Speed>,
        /// Lanes; `None`: as before.
        width: Option<Width>,
    },
    /// The link does something else to packets from now on. No event tells of it.
    Link {
        /// What changes; the rest stays.
        words: LinkSettings,
        /// For so long; `None`: until [`Incident::LinkRestore`].
        for_ns: Option<u64>,
    },
    /// The link is again as the device was opened with.
    LinkRestore,
    /// GID_CHANGE: an address has another index in the GID table.
    GidMove {
        /// Which port of the device, from 1.
        port: u8,
        /// Its index before.
        from: u32,
        /// Its index from now on; what was there takes the other one.
        to: u32,
    },
    /// The network's addresses lead to another adapter, as when the active part of a bond fails: GID_CHANGE,
    /// and RDMA_CM_EVENT_ADDR_CHANGE of each identifier on the device. Packets go on as before.
    AddrChange {
        /// Which port of the device, from 1.
        port: u8,
    },
    /// LID_CHANGE, and nothing else.
    LidChange {
        /// Which port of the device, from 1.
        port: u8,
    },
    /// PKEY_CHANGE, and nothing else.
    PkeyChange {
        /// Which port of the device, from 1.
        port: u8,
    },
    /// The connection of the queue pair is ended: a DREQ leaves, if the connection manager made it.
    Disconnect,
    /// DEVICE_FATAL: the device sends, receives and completes nothing any more.
    DeviceFatal,
    /// DEVICE_FATAL: the device is gone. Its queue pairs are flushed, and what was opened stays dead; after
    /// the time it can be opened again.
    Unplug {
        /// It is back after so long; `None`: never.
        for_ns: Option<u64>,
    },
    /// The device sends, receives and completes nothing; what arrives meanwhile is lost.
    Freeze {
        /// For so long.
        for_ns: u64,
    },
}

/// What the fields of a rule, or of a line of a report, say besides the kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Details {
    /// Ordinal of the object, or index in the GID table.
    pub(super) object: Option<u32>,
    /// Another index in the GID table.
    pub(super) to: Option<u32>,
    pub(super) for_ns: Option<u64>,
    pub(super) speed: Option<Speed>,
    pub(super) width: Option<Width>,
    /// The port of the device, where that is not the first.
    pub(super) port: Option<u8>,
    pub(super) link: Option<LinkSettings>,
}

/// The words for the kinds.
const KINDS: [&str; 20] = [
    "cq-error",
    "srq-limit",
    "srq-error",
    "qp-fatal",
    "qp-access-error",
    "path-mig-error",
    "port-down",
    "port-up",
    "cable-pull",
    "speed-change",
    "link",
    "link-restore",
    "gid-move",
    "addr-change",
    "lid-change",
    "pkey-change",
    "disconnect",
    "device-fatal",
    "unplug",
    "freeze",
];

/// The port of a device that is meant where none is named.
pub const FIRST_PORT: u8 = 1;
/// Ports of a device at most.
pub const MAX_PORTS: usize = 2;

/// Entries of the GID table.
pub const GID_TABLE_LEN: u32 = 1024;

impl Incident {
    /// The word for its kind.
    pub const fn word(&self) -> &'static str {
        match self {
            Incident::CqError { .. } => "cq-error",
            Incident::SrqLimit { .. } => "srq-limit",
            Incident::SrqError { .. } => "srq-error",
            Incident::QpFatal => "qp-fatal",
            Incident::QpAccessError => "qp-access-error",
            Incident::PathMigrationError => "path-mig-error",
            Incident::PortDown { .. } => "port-down",
            Incident::PortUp { .. } => "port-up",
            Incident::CablePull { .. } => "cable-pull",
            Incident::SpeedChange { .. } => "speed-change",
            Incident::Link { .. } => "link",
            Incident::LinkRestore => "link-restore",
            Incident::GidMove { .. } => "gid-move",
            Incident::AddrChange { .. } => "addr-change",
            Incident::LidChange { .. } => "lid-change",
            Incident::PkeyChange { .. } => "pkey-change",
            Incident::Disconnect => "disconnect",
            Incident::DeviceFatal => "device-fatal",
            Incident::Unplug { .. } => "unplug",
            Incident::Freeze { .. } => "freeze",
        }
    }

    /// How long it lasts, if it ends by itself.
    pub const fn lasts_ns(&self) -> Option<u64> {
        match self {
            Incident::PortDown { for_ns, .. }
            | Incident::CablePull { for_ns, .. }
            | Incident::Link { for_ns, .. }
            | Incident::Unplug { for_ns } => *for_ns,
            Incident::Freeze { for_ns } => Some(*for_ns),
            _ => None,
        }
    }

    /// Whether it needs no queue pair to happen at.
    pub(super) const fn is_of_device(&self) -> bool {
        !matches!(
            self,
            Incident::QpFatal | Incident::QpAccessError | Incident::PathMigrationError | Incident::Disconnect
        )
    }

    /// The port that it happens to, if it happens to one.
    pub(super) fn port(&self) -> Option<u8> {
        Incident::has_port(self.word()).then(|| self.details().port.unwrap_or(FIRST_PORT))
    }

    pub(super) fn details(&self) -> Details {
        let none = Details {
            object: None,
            to: None,
            for_ns: None,
            speed: None,
            width: None,
            port: None,
            link: None,
        };
        let at = |port: u8| Details { port: (port != FIRST_PORT).then_some(port), ..none };
        match *self {
            Incident::CqError { cq: object }
            | Incident::SrqLimit { srq: object }
            | Incident::SrqError { srq: object } => Details { object: Some(object), ..none },
            Incident::PortDown { port, for_ns } | Incident::CablePull { port, for_ns } => {
                Details { for_ns, ..at(port) }
            }
            Incident::Unplug { for_ns } => Details { for_ns, ..none },
            Incident::SpeedChange { port, speed, width } => Details { speed, width, ..at(port) },
            Incident::GidMove { port, from, to } => Details { object: Some(from), to: Some(to), ..at(port) },
            Incident::PortUp { port }
            | Incident::AddrChange { port }
            | Incident::LidChange { port }
            | Incident::PkeyChange { port } => at(port),
            Incident::Link { words, for_ns } => Details { link: Some(words), for_ns, ..none },
            Incident::Freeze { for_ns } => Details { for_ns: Some(for_ns), ..none },
            _ => none,
        }
    }

    /// The incident of a word and its details; those that it does not have are ignored.
    ///
    /// # Errors
    /// There is none of that name, or a detail that it needs is missing or impossible.
    pub(super) fn of(word: &str, details: Details) -> Result<Incident, String> {
        let object = details.object.unwrap_or(0);
        let port = details.port.unwrap_or(FIRST_PORT);
        if !(1..=MAX_PORTS as u8).contains(&port) {
            return Err(format!("a device has no port {port}: write port=1 or port=2"));
        }
        Ok(match word {
            "cq-error" => Incident::CqError { cq: object },
            "srq-limit" => Incident::SrqLimit { srq: object },
            "srq-error" => Incident::SrqError { srq: object },
            "qp-fatal" => Incident::QpFatal,
            "qp-access-error" => Incident::QpAccessError,
            "path-mig-error" => Incident::PathMigrationError,
            "port-down" => Incident::PortDown { port, for_ns: details.for_ns },
            "port-up" => Incident::PortUp { port },
            "cable-pull" => Incident::CablePull { port, for_ns: details.for_ns },
            "speed-change" if details.speed.is_none() && details.width.is_none() => {
                return Err("it does not say which rate: write speed=edr, width=2, or both".to_owned());
            }
            "speed-change" => Incident::SpeedChange { port, speed: details.speed, width: details.width },
            "link" => match details.link.filter(|words| *words != LinkSettings::default()) {
                Some(words) => Incident::Link { words, for_ns: details.for_ns },
                None => {
                    return Err(
                        "it does not say what changes: write rate=1Gbit, delay=20us, jitter, queue or \
                                ecn"
                        .to_owned(),
                    );
                }
            },
            "link-restore" => Incident::LinkRestore,
            "gid-move" => {
                let to = details.to.ok_or("it does not say where the address goes: write to=5")?;
                if object == to || object.max(to) >= GID_TABLE_LEN {
                    return Err(format!(
                        "an address cannot move from place {object} to {to}: write different ones below \
                         {GID_TABLE_LEN}"
                    ));
                }
                Incident::GidMove { port, from: object, to }
            }
            "addr-change" => Incident::AddrChange { port },
            "lid-change" => Incident::LidChange { port },
            "pkey-change" => Incident::PkeyChange { port },
            "disconnect" => Incident::Disconnect,
            "device-fatal" => Incident::DeviceFatal,
            "unplug" => Incident::Unplug { for_ns: details.for_ns },
            "freeze" => {
                let for_ns = details.for_ns.ok_or("it does not say for how long: write time=2s")?;
                Incident::Freeze { for_ns }
            }
            _ => return Err(format!("{word} is nothing that happens: write one of {}", KINDS.join(", "))),
        })
    }

    /// The field of a rule that says which object it is about.
    pub(super) fn object_field(word: &str) -> Option<&'static str> {
        match word {
            "cq-error" => Some("cq"),
            "srq-limit" | "srq-error" => Some("srq"),
            "gid-move" => Some("gid"),
            _ => None,
        }
    }

    /// Whether it has a rate.
    pub(super) fn has_rate(word: &str) -> bool {
        word == "speed-change"
    }

    /// Whether it says what a link is like.
    pub(super) fn has_link(word: &str) -> bool {
        word == "link"
    }

    /// Whether it happens to a port.
    pub(super) fn has_port(word: &str) -> bool {
        matches!(
            word,
            "port-down"
                | "port-up"
                | "cable-pull"
                | "speed-change"
                | "gid-move"
                | "addr-change"
                | "lid-change"
                | "pkey-change"
        )
    }

    /// Whether it lasts for a time.
    pub(super) fn has_time(word: &str) -> bool {
        matches!(word, "port-down" | "cable-pull" | "link" | "unplug" | "freeze")
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

/// What is to happen to the device: some of it waits until a queue pair stands still.
#[derive(Debug, Default)]
pub(crate) struct Incidents {
    /// Of the packet that is being decided.
    fresh: Vec<Incident>,
    /// Of queue pairs that do not stand still yet.
    waiting: Vec<(Qpn, Incident)>,
    due: Vec<(Qpn, Incident)>,
}

impl Incidents {
    pub(crate) fn begin(&mut self, happened: Vec<Incident>) {
        self.fresh = happened;
    }

    /// What the packet just decided brings with it is of this queue pair, which is halted or goes on.
    pub(crate) fn belong_to(&mut self, qpn: Qpn, is_halted: bool) {
        let list = if is_halted { &mut self.waiting } else { &mut self.due };
        list.extend(self.fresh.drain(..).map(|incident| (qpn, incident)));
    }

    /// It is to happen now, at no queue pair.
    pub(crate) fn happen_now(&mut self, incident: Incident) {
        self.due.push((Qpn::new(0), incident));
    }

    /// A queue pair stands still.
    pub(crate) fn halted(&mut self, qpn: Qpn) {
        self.due.extend(self.waiting.extract_if(.., |(of, _)| *of == qpn));
    }

    /// A queue pair was destroyed.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        self.waiting.retain(|(of, _)| *of != qpn);
    }

    /// Whether something is to happen now.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// What is to happen now, and at which queue pair.
    pub(crate) fn take(&mut self) -> Vec<(Qpn, Incident)> {
        std::mem::take(&mut self.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_incidents_are_inverses() {
        for word in KINDS {
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
