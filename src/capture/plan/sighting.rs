//! The packets of a capture, reduced to what a plan needs.

use std::io::Read;
use std::net::IpAddr;

use pumice_transport::mad::CmMessage;
use pumice_transport::wire::OpcodeInfo;

use crate::capture::decode::{Decoded, decode};
use crate::capture::file::{Frame, FrameError, for_each_frame};
use crate::capture::record::{Icrc, Record};

/// Maximum number of packets that are read; a capture may have any number.
pub(super) const MAX_PACKETS: usize = 20_000_000;

/// A packet as one capture has it.
#[derive(Debug, Clone)]
pub(crate) struct Sighting {
    /// Index of the capture among those of a record; otherwise 0.
    pub(crate) capture: usize,
    pub(crate) time_ns: u64,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// Queue pair that the packet is addressed to.
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) info: &'static OpcodeInfo,
    pub(crate) payload_bytes: usize,
    /// Address and length of the memory that a request names.
    pub(crate) memory: Option<(u64, u32)>,
    /// Syndrome and message sequence number of an answer.
    pub(crate) answer: Option<(u8, u32)>,
    pub(crate) is_damaged: bool,
    /// A fault plan lost the packet: it was not on the network.
    pub(crate) is_lost: bool,
    /// A fault plan applied to the packet.
    pub(crate) is_planned: bool,
    /// Direction, if the capture has it: true if the packet was captured where it was sent.
    pub(crate) is_outbound: Option<bool>,
    /// Properties of a datagram, if it is one.
    pub(crate) datagram: Option<DatagramInfo>,
}

/// The properties that a datagram has and packets of connections do not have.
#[derive(Debug, Clone)]
pub(crate) struct DatagramInfo {
    /// Queue pair that sent the datagram.
    pub(crate) from_qpn: u32,
    /// Name of a service whose messages are sent as datagrams: "SRD", "DC".
    pub(crate) numbered: Option<&'static str>,
    /// Digest of the payload.
    pub(crate) digest: u64,
    /// The message of connection management in the datagram.
    pub(crate) message: Option<Box<CmMessage>>,
}

/// Returns the packets of connections and the datagrams of a capture, in order.
///
/// # Errors
/// The reason why the capture cannot be read.
pub(super) fn sightings(input: impl Read) -> Result<Vec<Sighting>, String> {
    all_sightings(input, MAX_PACKETS)
}

/// Returns all packets of a capture, in order, at most `most` of them.
///
/// # Errors
/// The reason why the capture cannot be read.
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
        Err(FrameError::Broken(_)) if !all.is_empty() => Ok(all),
        Err(FrameError::Broken(what) | FrameError::Callback(what)) => Err(what),
    }
}

impl Sighting {
    /// Returns the name of the service if its messages are sent as datagrams, which are parts of messages and
    /// answers.
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
        datagram: headers.deth.map(|deth| DatagramInfo {
            from_qpn: deth.source.value(),
            numbered: record.part.as_ref().map(|part| part.0.service),
            digest: record.digest,
            message: record.message.clone(),
        }),
    })
}
