//! Packets as a plan needs them.

use std::io::Read;
use std::net::IpAddr;

use pumice_transport::mad::CmMessage;
use pumice_transport::wire::OpcodeInfo;

use crate::capture::decode::{Decoded, decode};
use crate::capture::file::{Frame, Reason, for_each_frame};
use crate::capture::record::{Icrc, Record};

/// Packets that are looked at; a capture may have any number.
pub(super) const MAX_PACKETS: usize = 20_000_000;

/// A packet, where it was captured.
#[derive(Debug, Clone)]
pub(crate) struct Sighting {
    /// The index of the capture among those of a record; else 0.
    pub(crate) capture: usize,
    pub(crate) time_ns: u64,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// The queue pair that it is for.
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) info: &'static OpcodeInfo,
    pub(crate) payload_bytes: usize,
    /// Of a request that names memory: from where, and how many bytes.
    pub(crate) memory: Option<(u64, u32)>,
    /// Of an answer: its syndrome, and how many messages are done.
    pub(crate) answer: Option<(u8, u32)>,
    pub(crate) is_damaged: bool,
    /// A fault plan lost it: it was never on the network.
    pub(crate) is_lost: bool,
    /// A fault plan did something to it.
    pub(crate) is_planned: bool,
    /// Whether it was captured where it was sent, if the capture says so.
    pub(crate) is_outbound: Option<bool>,
    /// Of a datagram.
    pub(crate) datagram: Option<Datagram>,
}

/// What a datagram has that packets of connections have not.
#[derive(Debug, Clone)]
pub(crate) struct Datagram {
    /// The queue pair that sent it.
    pub(crate) from_qpn: u32,
    /// The service, if it is one that has no packets of its own: "SRD", "DC".
    pub(crate) numbered: Option<&'static str>,
    /// Of its payload.
    pub(crate) digest: u64,
    /// The message of connection management that it is.
    pub(crate) message: Option<Box<CmMessage>>,
}

/// The packets of connections and the datagrams of a capture, in order.
///
/// # Errors
/// What is wrong with the capture.
pub(super) fn sightings(input: impl Read) -> Result<Vec<Sighting>, String> {
    all_sightings(input, MAX_PACKETS)
}

/// The same of a capture with at most `most` of them.
///
/// # Errors
/// What is wrong with the capture.
pub(crate) fn all_sightings(input: impl Read, most: usize) -> Result<Vec<Sighting>, String> {
    let mut all = Vec::new();
    let read = for_each_frame(input, |frame| {
        if let Decoded::Roce(records) = decode(frame) {
            all.extend(records.iter().filter_map(|record| sighting(frame, record)));
        }
        if all.len() > most {
            return Err(format!("there are more than {most} packets: cut it into parts"));
        }
        Ok(())
    });
    match read {
        Ok(()) => Ok(all),
        // A capture that is being written may end anywhere.
        Err(Reason::Broken(_)) if !all.is_empty() => Ok(all),
        Err(Reason::Broken(what) | Reason::Callback(what)) => Err(what),
    }
}

impl Sighting {
    /// The service, if it has no packets of its own: its datagrams are parts of messages, and answers.
    pub(crate) fn numbered(&self) -> Option<&'static str> {
        self.datagram.as_ref()?.numbered
    }
}

fn sighting(frame: &Frame<'_>, record: &Record) -> Option<Sighting> {
    let headers = record.headers.wire()?;
    let info = headers.bth.opcode.info()?;
    let is_known = info.service.has_messages();
    is_known.then(|| Sighting {
        capture: 0,
        time_ns: record.time_ns,
        source: record.source,
        destination: record.destination,
        qpn: record.qpn,
        psn: record.psn,
        info,
        payload_bytes: record.payload_bytes,
        memory: headers.reth.map(|reth| (reth.address, reth.length)),
        answer: headers.aeth.map(|aeth| (aeth.syndrome, aeth.msn)),
        is_damaged: matches!(record.icrc, Icrc::Bad { .. }),
        is_lost: record.is_lost(),
        is_planned: record.is_planned(),
        is_outbound: frame.is_outbound,
        datagram: headers.deth.map(|deth| Datagram {
            from_qpn: deth.source.value(),
            numbered: record.part.as_ref().map(|part| part.0.service),
            digest: record.digest,
            message: record.message.clone(),
        }),
    })
}
