//! Topologies: the switches between hosts, and their links and queues.
//!
//! A [`Topology`] is a value and a TOML text. The simulated network has its switches from one, and so do
//! devices in real time (`SwitchedPort`).
//!
//! A topology as a TOML text, the line of an error in it, and the report of a queue.

use std::fmt;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use pumice_platform::outside;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use toml::de::{DeTable, DeValue};

use self::value::{MAX_HOSTS, Problem};
use crate::settings::{SettingError, Settings, TOPOLOGY};

/// Number of bytes of a file that are read: a host and its cable take a hundred.
const MAX_FILE_BYTES: u64 = 1 << 18;

/// The contents of the text, name for name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyFile {
    kind: TopologyKind,
    hosts: Hosts,
    #[serde(default)]
    leaves: u16,
    #[serde(default)]
    spines: u16,
    #[serde(default)]
    pods: u16,
    #[serde(default)]
    cores: u16,
    #[serde(default)]
    seed: u64,
    link: SwitchLink,
    uplink: Option<SwitchLink>,
    corelink: Option<SwitchLink>,
    switch: SwitchQueues,
}

/// The value of `hosts`: `hosts = 8`, or a list of addresses and tables.
enum Hosts {
    Number(u16),
    Named(Vec<TopologyHost>),
}

impl<'de> Deserialize<'de> for Hosts {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Hosts, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Hosts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of hosts, or a list of their addresses")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Hosts, E> {
                let out_of_range =
                    || E::custom(format!("hosts is {number}, and must be from 1 to {MAX_HOSTS}"));
                u16::try_from(number).map(Hosts::Number).map_err(|_| out_of_range())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Hosts, A::Error> {
                let mut hosts = Vec::new();
                while let Some(Item(host)) = list.next_element()? {
                    hosts.push(host);
                }
                Ok(Hosts::Named(hosts))
            }
        }
        input.deserialize_any(Either)
    }
}

/// A host of the list.
struct Item(TopologyHost);

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Item, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Item;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the address of a host as a text, or a table with address and more")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Item, E> {
                Ok(Item(TopologyHost::at(address(text).map_err(E::custom)?)))
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Item, A::Error> {
                let own = OwnHost::deserialize(MapAccessDeserializer::new(table))?;
                let OwnHost { address: text, rate_mbps, delay_ns, queue_bytes, answers_arp } = own;
                let address = address(&text).map_err(de::Error::custom)?;
                let answers_arp = answers_arp.unwrap_or(true);
                Ok(Item(TopologyHost { address, rate_mbps, delay_ns, queue_bytes, answers_arp }))
            }
        }
        input.deserialize_any(Either)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnHost {
    address: String,
    rate_mbps: Option<u32>,
    delay_ns: Option<u64>,
    queue_bytes: Option<u64>,
    answers_arp: Option<bool>,
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is no address of a host: write one as \"127.0.0.2\" or \"fd00::2\""))
}

impl Topology {
    /// Parses a topology from a TOML text.
    ///
    /// # Errors
    /// Fails with a sentence: what is wrong in which line, or why there is no such network.
    pub fn parse(text: &str) -> Result<Topology, String> {
        let file: TopologyFile =
            toml::from_str(text).map_err(|error| crate::profile::sentence(&error, text))?;
        let (hosts, named) = match file.hosts {
            Hosts::Number(number) => (number, Vec::new()),
            Hosts::Named(named) => (u16::try_from(named.len()).unwrap_or(u16::MAX), named),
        };
        let TopologyFile { kind, leaves, spines, pods, cores, seed, link, uplink, corelink, .. } = file;
        let queues = file.switch;
        let topology = Topology {
            kind,
            hosts,
            named,
            leaves,
            spines,
            pods,
            cores,
            seed,
            link,
            uplink,
            corelink,
            queues,
        };
        topology.examine().map_err(|Problem { key, problem_sentence }| match line_of(&key, text) {
            Some(line) => format!("line {line}: {problem_sentence}"),
            None => problem_sentence,
        })?;
        Ok(topology)
    }

    /// Reads a topology from a file.
    ///
    /// # Errors
    /// Fails with a sentence without the file's name, and an errno: EINVAL if the contents are wrong.
    pub fn load(file: &Path) -> Result<Topology, (String, i32)> {
        let mut text = String::new();
        let opened = outside::files::open(file);
        let read = opened.and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text));
        if let Err(error) = read {
            let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
            return Err((format!("the file cannot be read: {error}"), errno));
        }
        if text.len() as u64 > MAX_FILE_BYTES {
            let problem_sentence =
                format!("it has more than {MAX_FILE_BYTES} bytes, which no topology needs");
            return Err((problem_sentence, libc::EINVAL));
        }
        Topology::parse(&text).map_err(|problem_sentence| (problem_sentence, libc::EINVAL))
    }

    /// Reads the topology that the settings name, if they name one.
    ///
    /// # Errors
    /// Fails with EINVAL if it is wrong, and with the error of the operating system if the file cannot be
    /// read.
    pub fn of(settings: &Settings) -> Result<Option<Arc<Topology>>, SettingError> {
        let Some(file) = &settings.topology else { return Ok(None) };
        let refused = |(problem, errno): (String, i32)| {
            SettingError::new(TOPOLOGY, file.to_string_lossy(), problem).with_errno(errno)
        };
        Topology::load(file).map(Arc::new).map(Some).map_err(refused)
    }
}

/// Returns the line of a key such as `link.rate_mbps` or `hosts.3`; that of the table around it if the key is
/// missing.
fn line_of(key: &str, text: &str) -> Option<usize> {
    let table = DeTable::parse(text).ok()?;
    let mut steps = key.split('.');
    let first = steps.next()?;
    let (name, mut value) = table.get_ref().iter().find(|(name, _)| name.get_ref() == first)?;
    let mut begins = name.span().start;
    for step in steps {
        let next = match value.get_ref() {
            DeValue::Table(table) => table
                .iter()
                .find(|(name, _)| name.get_ref() == step)
                .map(|(name, value)| (name.span(), value)),
            DeValue::Array(list) => {
                step.parse().ok().and_then(|index: usize| list.get(index)).map(|value| (value.span(), value))
            }
            _ => None,
        };
        let Some((span, below)) = next else { break };
        (begins, value) = (span.start, below);
    }
    Some(text.get(..begins)?.matches('\n').count() + 1)
}

/// The state and statistics of a queue in front of a link between hosts and switches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueReport {
    /// Name of the link by its ends, such as `leaf 0 to host 3`.
    pub name: String,
    /// Number of packets that joined the queue.
    pub packets: u64,
    /// Number of bytes that wait or are being sent.
    pub bytes: u64,
    /// Largest number of such bytes so far.
    pub most_bytes: u64,
    /// Number of bytes that have left.
    pub sent_bytes: u64,
    /// Number of packets that were marked when they joined it.
    pub marked: u64,
    /// Number of packets that found no room.
    pub dropped: u64,
    /// Number of times that its sender was paused.
    pub pauses: u64,
}

pub mod layout;

mod value;

pub use layout::{Layout, LinkSpec, TopologyNode};

pub use value::{SwitchLink, SwitchPauses, SwitchQueues, Topology, TopologyHost, TopologyKind};

#[cfg(test)]
mod tests;
