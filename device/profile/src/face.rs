//! What makes a device look like one of another kind, beside its numbers: its personality.

use pumice_calls::Call;
use pumice_transport::types::QpType;
use serde::{Deserialize, Deserializer, de};

/// Whether programs get a vendor's calls (`efadv_*`, `mlx5dv_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DirectCalls {
    /// They are refused.
    #[default]
    None,
    /// Those that are served answer.
    Calls,
}

/// What verbs and sysfs call the node; discriminants are those of `ibv_node_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum NodeType {
    /// A channel adapter.
    #[default]
    Ca = 1,
    /// None of the kinds that verbs know, as EFA says.
    Unspecified = 7,
}

impl NodeType {
    /// As sysfs writes it.
    pub const fn sysfs(self) -> &'static str {
        match self {
            NodeType::Ca => "1: CA",
            NodeType::Unspecified => "7: unspecified",
        }
    }

    /// `ibv_transport_type`: that of InfiniBand, which RoCE has too, or none that verbs know.
    pub const fn transport(self) -> i32 {
        match self {
            NodeType::Ca => 0,
            NodeType::Unspecified => 4,
        }
    }
}

/// Link layer of a port; discriminants are those of `ibv_port_attr::link_layer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum LinkLayer {
    /// None that verbs know, as EFA says.
    Unspecified = 0,
    /// Ethernet.
    #[default]
    Ethernet = 2,
}

impl LinkLayer {
    /// As sysfs and tools write it.
    pub const fn name(self) -> &'static str {
        match self {
            LinkLayer::Unspecified => "Unspecified",
            LinkLayer::Ethernet => "Ethernet",
        }
    }
}

/// Kinds of queue pairs that programs may make, by the words of a profile.
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
        // All that verbs make; SRD and DC are made by calls of a vendor.
        QueuePairKinds((1 << 5) - 1)
    }
}

impl QueuePairKinds {
    /// Whether programs may make queue pairs of a type.
    pub fn has(self, qp_type: QpType) -> bool {
        let kind = KINDS.iter().position(|(_, types)| types.contains(&qp_type));
        kind.is_some_and(|index| self.0 >> index & 1 != 0)
    }

    /// Their words, with commas between them.
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

/// Calls that the device refuses with EOPNOTSUPP, as the driver of the device that it looks like does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Refusals(Vec<Call>);

impl Refusals {
    /// Whether a call is refused.
    pub fn has(&self, call: Call) -> bool {
        self.0.contains(&call)
    }

    /// Those that are refused.
    pub fn calls(&self) -> &[Call] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Refusals {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Refusals, D::Error> {
        let call_of = |name: &String| {
            let found = Call::of(name).filter(|call| call.row().answer != pumice_calls::Answer::Plain);
            // A call that gives back is how programs clean up; calls on the data path are not looked at.
            found.filter(|call| !call.gives_back() && !call.is_data_path()).ok_or_else(|| {
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
