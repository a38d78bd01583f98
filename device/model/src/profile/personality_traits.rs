//! The personality of a device: what makes it look like one of another kind, beside its numbers.

use pumice_calls::Call;
use pumice_transport::types::QpType;
use serde::{Deserialize, Deserializer, de};

/// The availability of a vendor's calls (`efadv_*`, `mlx5dv_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DirectCalls {
    /// All vendor calls are refused.
    #[default]
    None,
    /// The vendor calls that are implemented work.
    Calls,
}

/// The time after which the number of a destroyed queue pair is given to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QpnReuse {
    /// Numbers go round: a number is reused after all others.
    #[default]
    Late,
    /// The next queue pair gets the number. A late packet then reaches that one.
    AtOnce,
}

/// The node type in verbs and sysfs; discriminants are those of `ibv_node_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum NodeType {
    /// A channel adapter.
    #[default]
    Ca = 1,
    /// A node of none of the kinds that verbs know, as EFA reports.
    Unspecified = 7,
}

impl NodeType {
    /// Returns the node type as sysfs writes it.
    pub const fn sysfs(self) -> &'static str {
        match self {
            NodeType::Ca => "1: CA",
            NodeType::Unspecified => "7: unspecified",
        }
    }

    /// Returns the `ibv_transport_type`: that of InfiniBand, which RoCE has too, or none that verbs know.
    pub const fn transport(self) -> i32 {
        match self {
            NodeType::Ca => 0,
            NodeType::Unspecified => 4,
        }
    }
}

/// The link layer of a port; discriminants are those of `ibv_port_attr::link_layer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum LinkLayer {
    /// A link layer that verbs do not know, as EFA reports.
    Unspecified = 0,
    /// Ethernet.
    #[default]
    Ethernet = 2,
}

impl LinkLayer {
    /// Returns the link layer as sysfs and tools write it.
    pub const fn name(self) -> &'static str {
        match self {
            LinkLayer::Unspecified => "Unspecified",
            LinkLayer::Ethernet => "Ethernet",
        }
    }
}

/// The kinds of queue pairs that programs may create, by their names in a profile.
const KINDS: [(&str, &[QpType]); 7] = [
    ("rc", &[QpType::Rc]),
    ("uc", &[QpType::Uc]),
    ("ud", &[QpType::Ud]),
    ("xrc", &[QpType::XrcDuplex, QpType::XrcInitiator, QpType::XrcTarget]),
    ("raw", &[QpType::RawPacket]),
    ("srd", &[QpType::Srd]),
    ("dc", &[QpType::Dci, QpType::Dct]),
];

/// A set of kinds of queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePairKinds(u8);

impl Default for QueuePairKinds {
    fn default() -> QueuePairKinds {
        // The default contains all kinds that verbs create; SRD and DC are created by vendor calls.
        QueuePairKinds((1 << 5) - 1)
    }
}

impl QueuePairKinds {
    /// Reports whether programs may create queue pairs of a type.
    pub fn has(self, qp_type: QpType) -> bool {
        let kind = KINDS.iter().position(|(_, types)| types.contains(&qp_type));
        kind.is_some_and(|index| self.0 >> index & 1 != 0)
    }

    /// Returns the names of the kinds, with commas between them.
    pub fn words(self) -> String {
        let each = KINDS.iter().enumerate().filter(|(index, _)| self.0 >> index & 1 != 0);
        each.map(|(_, (word, _))| *word).collect::<Vec<_>>().join(", ")
    }
}

impl<'de> Deserialize<'de> for QueuePairKinds {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<QueuePairKinds, D::Error> {
        let mut set = 0;
        for word in Vec::<String>::deserialize(input)? {
            let Some(index) = KINDS.iter().position(|(known, _)| *known == word) else {
                let known = KINDS.map(|(known, _)| known).join(", ");
                return Err(de::Error::custom(format!(
                    "no kind of queue pairs is {word}; there are {known}"
                )));
            };
            set |= 1 << index;
        }
        Ok(QueuePairKinds(set))
    }
}

/// The calls that the device refuses with EOPNOTSUPP, as the driver of the imitated device does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Refusals(Vec<Call>);

impl Refusals {
    /// Reports whether a call is refused.
    pub fn has(&self, call: Call) -> bool {
        self.0.contains(&call)
    }

    /// Returns the calls that are refused.
    pub fn calls(&self) -> &[Call] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Refusals {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Refusals, D::Error> {
        let call_of = |name: &String| {
            let found = Call::of(name).filter(|call| call.row().answer != pumice_calls::ErrorReturn::Plain);
            // A call that releases something is how programs clean up; calls on the data path are not
            // checked.
            found.filter(|call| !call.destroys() && !call.is_data_path()).ok_or_else(|| {
                de::Error::custom(format!(
                    "{name} is no call that a device may refuse, such as ibv_create_srq"
                ))
            })
        };
        let names = Vec::<String>::deserialize(input)?;
        let calls: Result<Vec<Call>, D::Error> = names.iter().map(call_of).collect();
        Ok(Refusals(calls?))
    }
}
