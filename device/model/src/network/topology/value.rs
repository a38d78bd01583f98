//! The switches of a topology, and their links and queues.

use std::hash::Hasher as _;
use std::net::IpAddr;

use fnv::FnvHasher;
use pumice_platform::link_settings::EcnMarking;
use serde::Deserialize;

/// Largest number of hosts of a network.
pub(super) const MAX_HOSTS: u16 = 1024;
/// Largest number of switches of a tier.
const MAX_SWITCHES: u16 = 64;
/// Largest number of addresses that a sentence lists.
const MAX_LISTED: usize = 8;

/// The way in which switches are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyKind {
    /// A single switch, to which all hosts are connected.
    Star,
    /// Hosts at leaves, each of which is connected to each spine. A hash of addresses and UDP ports chooses
    /// the spine, so that the packets of a flow stay in order.
    TwoTier,
    /// Pods, each of which is of two tiers, with cores above the spines (a fat tree).
    ThreeTier,
}

/// The switches between hosts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Topology {
    /// Way in which they are connected.
    pub kind: TopologyKind,
    /// Number of ports for hosts, over all leaves.
    pub hosts: u16,
    /// Hosts by address, and the properties of their cables that differ from those of all. Without this the
    /// n-th port that is attached to a simulated network is the n-th host.
    pub named: Vec<TopologyHost>,
    /// Number of leaves, over all pods; none in a star. Neighbouring hosts are at one leaf.
    pub leaves: u16,
    /// Number of spines, over all pods; none in a star.
    pub spines: u16,
    /// Number of pods; three-tier only. Neighbouring leaves are in one pod.
    pub pods: u16,
    /// Number of cores; three-tier only.
    pub cores: u16,
    /// Seed of the draws of marks.
    pub seed: u64,
    /// Links between hosts and switches.
    pub link: SwitchLink,
    /// Links between leaves and spines; like the others by default.
    pub uplink: Option<SwitchLink>,
    /// Links between spines and cores; like those between leaves and spines by default.
    pub corelink: Option<SwitchLink>,
    /// Queues and buffers of each switch.
    pub queues: SwitchQueues,
}

/// A host by its address. Properties of its cable that are not given are those of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TopologyHost {
    /// Address of its device.
    pub address: IpAddr,
    /// Rate of its cable in Mbit/s, each way.
    pub rate_mbps: Option<u32>,
    /// Delay of its cable in ns, each way.
    pub delay_ns: Option<u64>,
    /// Length of the queue of the switch's port to it, in bytes.
    pub queue_bytes: Option<u64>,
    /// True if the host answers ARP and neighbour discovery: no program can connect to a host that does not.
    pub answers_arp: bool,
}

/// An error of a topology, and its key in the text.
pub struct Problem {
    pub key: String,
    pub problem_sentence: String,
}

/// A link, each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchLink {
    /// Rate in Mbit/s, headers of Ethernet, IP and UDP included.
    pub rate_mbps: u32,
    /// Delay from the last bit sent to arrival, in ns.
    pub delay_ns: u64,
}

/// The queues of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchQueues {
    /// Length of the queue of a port, in bytes.
    pub queue_bytes: u64,
    /// Number of bytes that all queues of a switch share; by default there is no limit beside that of each
    /// queue.
    pub buffer_bytes: Option<u64>,
    /// Rule by which packets are marked; by default none.
    #[serde(default, deserialize_with = "ecn")]
    pub ecn: Option<EcnMarking>,
    /// Thresholds at which senders are paused before a queue is full; by default packets are lost.
    pub pause: Option<SwitchPauses>,
}

/// The thresholds at which a switch pauses the sender of a link, in bytes that came by the link and that the
/// switch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchPauses {
    /// Threshold above which the sender is paused.
    pub xoff_bytes: u64,
    /// Threshold at or below which it goes on.
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
    /// Returns its kind and the rate of the cables of hosts, in words.
    pub fn in_words(&self) -> String {
        let kind = match self.kind {
            TopologyKind::Star => "star",
            TopologyKind::TwoTier => "two-tier",
            TopologyKind::ThreeTier => "three-tier",
        };
        format!("{kind}, {} Mbit/s", self.link.rate_mbps)
    }

    /// Returns a star without marks and pauses, with queues of 1 MiB.
    pub fn star(hosts: u16, link: SwitchLink) -> Topology {
        let queues = SwitchQueues { queue_bytes: 1 << 20, buffer_bytes: None, ecn: None, pause: None };
        Topology {
            kind: TopologyKind::Star,
            hosts,
            named: Vec::new(),
            leaves: 0,
            spines: 0,
            pods: 0,
            cores: 0,
            seed: 0,
            link,
            uplink: None,
            corelink: None,
            queues,
        }
    }

    /// Checks whether there can be such a network.
    ///
    /// # Errors
    /// Fails with a sentence that gives the reason.
    pub fn check(&self) -> Result<(), String> {
        self.examine().map_err(|problem| problem.problem_sentence)
    }

    /// Checks that the topology can exist.
    ///
    /// # Errors
    /// What cannot be, and what to write instead.
    pub fn examine(&self) -> Result<(), Problem> {
        in_range("hosts", self.hosts.into(), 1, MAX_HOSTS.into())?;
        self.examine_tiers()?;
        self.link.check("link")?;
        self.uplink().check("uplink")?;
        self.corelink().check("corelink")?;
        self.queues.check("switch")?;
        self.examine_hosts()
    }

    /// Checks that the switches can be connected as the kind says.
    fn examine_tiers(&self) -> Result<(), Problem> {
        let Topology { kind, hosts, leaves, spines, pods, cores, .. } = *self;
        let inner = [(leaves > 0, "leaves"), (spines > 0, "spines"), (self.uplink.is_some(), "uplink")];
        let outer = [(pods > 0, "pods"), (cores > 0, "cores"), (self.corelink.is_some(), "corelink")];
        let said = |keys: &[(bool, &'static str)]| keys.iter().find(|(is_said, _)| *is_said).map(|key| key.1);
        match kind {
            TopologyKind::Star => match said(&[inner, outer].concat()) {
                None => return Ok(()),
                Some(key) => {
                    let sentence = "a star has one switch: leave out leaves, spines and uplink, or write \
                                    kind = \"two-tier\"";
                    return Err(Problem::new(key, sentence));
                }
            },
            TopologyKind::TwoTier => {
                if let Some(key) = said(&outer) {
                    let sentence = "two tiers are leaves and spines: leave out pods, cores and corelink, or \
                                    write kind = \"three-tier\"";
                    return Err(Problem::new(key, sentence));
                }
            }
            TopologyKind::ThreeTier => in_range("pods", pods.into(), 1, MAX_SWITCHES.into())?,
        }
        in_range("leaves", leaves.into(), 1, MAX_SWITCHES.into())?;
        in_range("spines", spines.into(), 1, MAX_SWITCHES.into())?;
        shared_out("leaves", (hosts, "hosts"), (leaves, "leaves"))?;
        if kind == TopologyKind::ThreeTier {
            in_range("cores", cores.into(), 1, MAX_SWITCHES.into())?;
            shared_out("leaves", (leaves, "leaves"), (pods, "pods"))?;
            shared_out("spines", (spines, "spines"), (pods, "pods"))?;
            shared_out("cores", (cores, "cores"), (spines / pods, "spines of a pod"))?;
        }
        Ok(())
    }

    fn examine_hosts(&self) -> Result<(), Problem> {
        if !self.named.is_empty() && self.named.len() != usize::from(self.hosts) {
            let problem_sentence = format!("{} hosts have addresses, of {}", self.named.len(), self.hosts);
            return Err(Problem::new("hosts", problem_sentence));
        }
        for (index, host) in self.named.iter().enumerate() {
            let key = format!("hosts.{index}");
            let address = host.address;
            if address.is_unspecified() || address.is_multicast() {
                return Err(Problem::new(&key, format!("{address} is no address that a host can have")));
            }
            let earlier = self.named.iter().take(index).position(|other| other.address == address);
            if let Some(earlier) = earlier {
                let problem_sentence =
                    format!("{address} is the address of two hosts, number {earlier} and number {index}");
                return Err(Problem::new(&key, problem_sentence));
            }
            self.cable(index).check(&key)?;
            if let Some(queue_bytes) = host.queue_bytes {
                SwitchQueues { queue_bytes, ..self.queues }.check(&key)?;
            }
        }
        Ok(())
    }

    /// Returns the links between leaves and spines.
    pub fn uplink(&self) -> SwitchLink {
        self.uplink.unwrap_or(self.link)
    }

    /// Returns the links between spines and cores.
    pub fn corelink(&self) -> SwitchLink {
        self.corelink.unwrap_or(self.uplink())
    }

    /// Returns the link between a host and its switch.
    pub fn cable(&self, host: usize) -> SwitchLink {
        let own = self.named.get(host);
        SwitchLink {
            rate_mbps: own.and_then(|host| host.rate_mbps).unwrap_or(self.link.rate_mbps),
            delay_ns: own.and_then(|host| host.delay_ns).unwrap_or(self.link.delay_ns),
        }
    }

    /// Returns the index of the host that has an address.
    pub fn host_of(&self, address: IpAddr) -> Option<usize> {
        self.named.iter().position(|host| host.address == address)
    }

    /// Checks whether a device with these addresses can be one of the hosts.
    ///
    /// # Errors
    /// Fails with a sentence that gives the reason.
    pub fn check_device(&self, name: &str, addresses: &[IpAddr]) -> Result<(), String> {
        if self.named.is_empty() {
            return Err(format!(
                "it names no addresses of hosts: write hosts = [\"127.0.0.2\", \"127.0.0.3\"] in place of \
                 hosts = {}",
                self.hosts
            ));
        }
        if addresses.iter().any(|address| self.host_of(*address).is_some()) {
            return Ok(());
        }
        let hosts: Vec<IpAddr> = self.named.iter().map(|host| host.address).collect();
        Err(format!(
            "no address of {name} ({}) is one of its hosts ({}): give the device the address of a host, with \
             --addr",
            listed(addresses),
            listed(&hosts)
        ))
    }

    /// Returns a number that is the same for equal topologies, and differs for others.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = FnvHasher::default();
        hasher.write(format!("{self:?}").as_bytes());
        hasher.finish()
    }
}

impl Problem {
    pub fn new(key: &str, problem_sentence: impl Into<String>) -> Problem {
        Problem { key: key.to_owned(), problem_sentence: problem_sentence.into() }
    }
}

impl TopologyHost {
    /// Returns a host whose cable has no properties of its own.
    pub fn at(address: IpAddr) -> TopologyHost {
        TopologyHost { address, rate_mbps: None, delay_ns: None, queue_bytes: None, answers_arp: true }
    }
}

impl SwitchLink {
    fn check(&self, name: &str) -> Result<(), Problem> {
        in_range(&format!("{name}.rate_mbps"), self.rate_mbps.into(), 1, 1_600_000)?;
        in_range(&format!("{name}.delay_ns"), self.delay_ns, 0, 1_000_000_000)
    }
}

impl SwitchQueues {
    fn check(&self, name: &str) -> Result<(), Problem> {
        // A jumbo frame must fit.
        in_range(&format!("{name}.queue_bytes"), self.queue_bytes, 10_000, 1 << 32)?;
        if let Some(bytes) = self.buffer_bytes {
            in_range("switch.buffer_bytes", bytes, 10_000, 1 << 40)?;
        }
        if let Some(EcnMarking::Ramp { min_bytes, max_bytes, most_ppm }) = self.ecn {
            if min_bytes > max_bytes {
                let problem_sentence =
                    format!("switch.ecn: min_bytes {min_bytes} is above max_bytes {max_bytes}");
                return Err(Problem::new("switch.ecn.min_bytes", problem_sentence));
            }
            in_range("switch.ecn.most_ppm", most_ppm.into(), 0, 1_000_000)?;
        }
        if let Some(SwitchPauses { xoff_bytes, xon_bytes }) = self.pause {
            if xon_bytes >= xoff_bytes {
                let problem_sentence =
                    format!("switch.pause: xon_bytes {xon_bytes} is not below xoff_bytes {xoff_bytes}");
                return Err(Problem::new("switch.pause.xon_bytes", problem_sentence));
            }
            if xoff_bytes >= self.queue_bytes {
                let problem_sentence = format!(
                    "switch.pause: a queue of {} bytes is full before {xoff_bytes} bytes pause the sender",
                    self.queue_bytes
                );
                return Err(Problem::new("switch.pause.xoff_bytes", problem_sentence));
            }
        }
        Ok(())
    }
}

/// Checks that things can be shared out evenly among others.
fn shared_out(key: &str, (count, things): (u16, &str), (among, others): (u16, &str)) -> Result<(), Problem> {
    if among > 0 && count.is_multiple_of(among) {
        return Ok(());
    }
    Err(Problem::new(key, format!("{count} {things} cannot be shared out evenly among {among} {others}")))
}

/// Returns the first addresses, with commas between them.
fn listed(addresses: &[IpAddr]) -> String {
    let mut all: Vec<String> = addresses.iter().take(MAX_LISTED).map(IpAddr::to_string).collect();
    if addresses.len() > MAX_LISTED {
        all.push("…".to_owned());
    }
    all.join(", ")
}

fn in_range(name: &str, value: u64, lowest: u64, highest: u64) -> Result<(), Problem> {
    if (lowest..=highest).contains(&value) {
        return Ok(());
    }
    Err(Problem::new(name, format!("{name} is {value}, and must be from {lowest} to {highest}")))
}
