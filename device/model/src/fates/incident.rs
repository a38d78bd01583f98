//! Incidents, which a fault plan applies to the device itself: objects fail, a port goes down, addresses
//! move, or an adapter stops.

use crate::addresses::gid_table::GidTable;
use std::fmt;

use pumice_platform::link_rate::{Speed, Width};
use pumice_platform::link_settings::LinkSettings;

use super::details::{
    CQ, DetailField, Details, FIRST_PORT, FOR, GID, LINK, PORT, SPEED, SRQ, TIME, TO, WIDTH,
};

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
