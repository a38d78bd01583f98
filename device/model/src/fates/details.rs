//! Fields of incidents in fault rules and in report lines: their names, and how an incident is built from
//! them.

use pumice_platform::link_settings::{LinkSettings, Speed, Width};

pub use crate::addresses::{FIRST_PORT, MAX_PORTS};

/// The fields of an incident, in a rule or in a line of a report, besides its kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Details {
    /// Ordinal of the object, or index in the GID table.
    pub object: Option<u32>,
    /// Another index in the GID table.
    pub to: Option<u32>,
    /// Duration, in ns.
    pub for_ns: Option<u64>,
    /// Rate of a lane.
    pub speed: Option<Speed>,
    /// Number of lanes.
    pub width: Option<Width>,
    /// The number of the device's port, if it is not the first.
    pub port: Option<u8>,
    /// Settings of the link that change.
    pub link: Option<LinkSettings>,
}

/// A field that rules of some kinds of incidents may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetailField {
    /// The ordinal of a completion queue.
    Cq,
    /// The ordinal of a shared receive queue.
    Srq,
    /// The index of an address before.
    Gid,
    /// The index of an address after.
    To,
    /// Duration.
    Time,
    /// Rate of a lane.
    Speed,
    /// Number of lanes.
    Width,
    /// Number of the device's port.
    Port,
    /// The settings of a link: a field for each setting, and one for the direction.
    Link,
}

impl DetailField {
    /// All fields.
    pub const ALL: [DetailField; 9] = [
        DetailField::Cq,
        DetailField::Srq,
        DetailField::Gid,
        DetailField::To,
        DetailField::Time,
        DetailField::Speed,
        DetailField::Width,
        DetailField::Port,
        DetailField::Link,
    ];

    /// Returns the names of the field in rules.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            DetailField::Cq => &["cq"],
            DetailField::Srq => &["srq"],
            DetailField::Gid => &["gid"],
            DetailField::To => &["to"],
            DetailField::Time => &["time"],
            DetailField::Speed => &["speed"],
            DetailField::Width => &["width"],
            DetailField::Port => &["port"],
            DetailField::Link => &["way", "rate", "delay", "jitter", "queue", "ecn"],
        }
    }
}

/// A field of an incident, and how it is read from and written to [`Details`].
pub struct DetailPart<T> {
    /// The field that has the part.
    pub field: DetailField,
    /// Returns the field's value, or which field is missing or wrong and what to write.
    pub read: fn(&Details) -> Result<T, String>,
    /// Writes the part.
    pub write: fn(&mut Details, T),
}

/// The completion queue.
pub const CQ: DetailPart<u32> = object(DetailField::Cq);
/// The shared receive queue.
pub const SRQ: DetailPart<u32> = object(DetailField::Srq);
/// The index before.
pub const GID: DetailPart<u32> = object(DetailField::Gid);

/// Returns the part for the ordinal of an object or an index, which is 0 if the rule names none.
const fn object(field: DetailField) -> DetailPart<u32> {
    DetailPart {
        field,
        read: |details| Ok(details.object.unwrap_or(0)),
        write: |details, object| details.object = Some(object),
    }
}

/// The index after.
pub const TO: DetailPart<u32> = DetailPart {
    field: DetailField::To,
    read: |details| details.to.ok_or_else(|| "it does not say where the address goes: write to=5".to_owned()),
    write: |details, to| details.to = Some(to),
};

/// A duration that may be unlimited.
pub const TIME: DetailPart<Option<u64>> = DetailPart {
    field: DetailField::Time,
    read: |details| Ok(details.for_ns),
    write: |details, for_ns| details.for_ns = for_ns,
};

/// A duration that must be limited.
pub const FOR: DetailPart<u64> = DetailPart {
    field: DetailField::Time,
    read: |details| details.for_ns.ok_or_else(|| "it does not say for how long: write time=2s".to_owned()),
    write: |details, for_ns| details.for_ns = Some(for_ns),
};

/// The rate of a lane.
pub const SPEED: DetailPart<Option<Speed>> = DetailPart {
    field: DetailField::Speed,
    read: |details| Ok(details.speed),
    write: |details, speed| details.speed = speed,
};

/// The number of lanes.
pub const WIDTH: DetailPart<Option<Width>> = DetailPart {
    field: DetailField::Width,
    read: |details| Ok(details.width),
    write: |details, width| details.width = width,
};

/// The number of the port.
pub const PORT: DetailPart<u8> = DetailPart {
    field: DetailField::Port,
    read: |details| match details.port.unwrap_or(FIRST_PORT) {
        port if (1..=MAX_PORTS as u8).contains(&port) => Ok(port),
        port => Err(format!("a device has no port {port}: write port=1 or port=2")),
    },
    write: |details, port| details.port = (port != FIRST_PORT).then_some(port),
};

/// The settings of the link.
pub const LINK: DetailPart<LinkSettings> = DetailPart {
    field: DetailField::Link,
    read: |details| {
        details.link.filter(|words| *words != LinkSettings::default()).ok_or_else(|| {
            "it does not say what changes: write rate=1Gbit, delay=20us, jitter, queue or ecn".to_owned()
        })
    },
    write: |details, words| details.link = Some(words),
};
