//! Which switches there are, and what their links and queues are like: a value, and a TOML file.

use serde::Deserialize;

use crate::port::link::EcnMarking;

/// Hosts of a network at most.
const MAX_HOSTS: u16 = 1024;
/// Switches of a tier at most.
const MAX_SWITCHES: u16 = 64;

/// How switches are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyKind {
    /// One switch, to which all hosts are connected.
    Star,
    /// Hosts at leaves, each of which is connected to each spine. A hash of addresses and UDP ports chooses
    /// the spine, so that the packets of a flow stay in order.
    TwoTier,
}

/// The switches of a simulated network.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// How they are put together.
    pub kind: TopologyKind,
    /// Ports for hosts, over all leaves. The n-th port that is attached to the network has the n-th place.
    pub hosts: u16,
    /// Leaves; two-tier only. Neighbouring hosts are at one leaf.
    #[serde(default)]
    pub leaves: u16,
    /// Spines; two-tier only.
    #[serde(default)]
    pub spines: u16,
    /// Of the draws of marks.
    #[serde(default)]
    pub seed: u64,
    /// Links between hosts and switches.
    pub link: SwitchLink,
    /// Links between leaves and spines; like the others by default.
    pub uplink: Option<SwitchLink>,
    /// Queues and buffers of each switch.
    #[serde(rename = "switch")]
    pub queues: SwitchQueues,
}

/// A link, each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchLink {
    /// Rate in Mbit/s, headers of Ethernet, IP and UDP included.
    pub rate_mbps: u32,
    /// From the last bit sent to arrival, in ns.
    pub delay_ns: u64,
}

/// Queues of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchQueues {
    /// Bytes that the queue of a port has room for.
    pub queue_bytes: u64,
    /// Bytes that all queues of a switch share; by default there is no limit beside that of each queue.
    pub buffer_bytes: Option<u64>,
    /// Which packets are marked; by default none.
    #[serde(default, deserialize_with = "ecn")]
    pub ecn: Option<EcnMarking>,
    /// Whether senders are paused before a queue is full; by default packets are lost.
    pub pause: Option<SwitchPauses>,
}

/// When a switch pauses what a link brings, by the bytes of it that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchPauses {
    /// Above this the sender is paused.
    pub xoff_bytes: u64,
    /// At or below this it goes on.
    pub xon_bytes: u64,
}

/// Kmin, Kmax and Pmax of a switch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ramp {
    min_bytes: u64,
    max_bytes: u64,
    most_ppm: u32,
}

fn ecn<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<EcnMarking>, D::Error> {
    let Ramp { min_bytes, max_bytes, most_ppm } = Ramp::deserialize(input)?;
    Ok(Some(EcnMarking::Ramp { min_bytes, max_bytes, most_ppm }))
}

impl Topology {
    /// A star without marks and pauses, with queues of 1 MiB.
    pub fn star(hosts: u16, link: SwitchLink) -> Topology {
        let queues = SwitchQueues { queue_bytes: 1 << 20, buffer_bytes: None, ecn: None, pause: None };
        Topology {
            kind: TopologyKind::Star,
            hosts,
            leaves: 0,
            spines: 0,
            seed: 0,
            link,
            uplink: None,
            queues,
        }
    }

    /// The topology that a TOML text says.
    ///
    /// # Errors
    /// A sentence: what is wrong in which line, or why there is no such network.
    pub fn parse(text: &str) -> Result<Topology, String> {
        let topology: Topology =
            toml::from_str(text).map_err(|error| crate::profile::sentence(&error, text))?;
        topology.check()?;
        Ok(topology)
    }

    /// Whether there can be such a network.
    ///
    /// # Errors
    /// A sentence: why not.
    pub fn check(&self) -> Result<(), String> {
        let Topology { kind, hosts, leaves, spines, .. } = *self;
        in_range("hosts", hosts.into(), 1, MAX_HOSTS.into())?;
        match kind {
            TopologyKind::Star if leaves > 0 || spines > 0 || self.uplink.is_some() => {
                return Err("a star has one switch: leave out leaves, spines and uplink, or write \
                            kind = \"two-tier\""
                    .to_owned());
            }
            TopologyKind::Star => {}
            TopologyKind::TwoTier => {
                in_range("leaves", leaves.into(), 1, MAX_SWITCHES.into())?;
                in_range("spines", spines.into(), 1, MAX_SWITCHES.into())?;
                if !hosts.is_multiple_of(leaves) {
                    return Err(format!("{hosts} hosts cannot be shared out evenly among {leaves} leaves"));
                }
            }
        }
        self.link.check("link")?;
        self.uplink().check("uplink")?;
        self.queues.check()
    }

    /// Links between leaves and spines.
    pub(super) fn uplink(&self) -> SwitchLink {
        self.uplink.unwrap_or(self.link)
    }
}

impl SwitchLink {
    fn check(&self, name: &str) -> Result<(), String> {
        in_range(&format!("{name}.rate_mbps"), self.rate_mbps.into(), 1, 1_600_000)?;
        in_range(&format!("{name}.delay_ns"), self.delay_ns, 0, 1_000_000_000)
    }
}

impl SwitchQueues {
    fn check(&self) -> Result<(), String> {
        // A jumbo frame must fit.
        in_range("switch.queue_bytes", self.queue_bytes, 10_000, 1 << 32)?;
        if let Some(bytes) = self.buffer_bytes {
            in_range("switch.buffer_bytes", bytes, 10_000, 1 << 40)?;
        }
        if let Some(EcnMarking::Ramp { min_bytes, max_bytes, most_ppm }) = self.ecn {
            if min_bytes > max_bytes {
                return Err(format!("switch.ecn: min_bytes {min_bytes} is above max_bytes {max_bytes}"));
            }
            in_range("switch.ecn.most_ppm", most_ppm.into(), 0, 1_000_000)?;
        }
        if let Some(SwitchPauses { xoff_bytes, xon_bytes }) = self.pause {
            if xon_bytes >= xoff_bytes {
                return Err(format!(
                    "switch.pause: xon_bytes {xon_bytes} is not below xoff_bytes {xoff_bytes}"
                ));
            }
            if xoff_bytes >= self.queue_bytes {
                return Err(format!(
                    "switch.pause: a queue of {} bytes is full before {xoff_bytes} bytes pause the sender",
                    self.queue_bytes
                ));
            }
        }
        Ok(())
    }
}

fn in_range(name: &str, value: u64, lowest: u64, highest: u64) -> Result<(), String> {
    if (lowest..=highest).contains(&value) {
        return Ok(());
    }
    Err(format!("{name} is {value}, and must be from {lowest} to {highest}"))
}
