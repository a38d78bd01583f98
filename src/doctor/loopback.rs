//! Exchanges packets over the loopback interface, and examines whether processes on this host can share
//! memory.
//!
//! Exchanges packets over the loopback interface: do they arrive, and does the kernel segment and merge
//! batches?

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use pumice_device::findings::Finding;
use pumice_device::port::{GsoBatch, Port, PortError, TransmitError, UdpConfig, UdpPort, wait_readable};
use pumice_transport::path::{Flow, Path};

use super::kind::{LOOPBACK, OFFLOAD, SHARED_MEMORY, WIRE, blocking, ok, warning};
use crate::same_host::SameHost;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const TIMEOUT: Duration = Duration::from_secs(1);
const SEGMENT_BYTES: usize = 64;
/// Size of the socket buffer in bytes: a usual default, because the buffer is not examined here.
const BUFFER_BYTES: usize = 64 << 10;

/// Sends a batch of two packets over the loopback interface.
pub(crate) fn loopback() -> Vec<Finding> {
    let exchange = match exchange() {
        Ok(exchange) => exchange,
        Err(failure) => {
            return vec![blocking(
                &LOOPBACK,
                format!("a batch of two packets to {ADDRESS} does not arrive: {failure}"),
                "Bring the interface up (ip link set lo up) and let the firewall accept UDP on lo.",
            )];
        }
    };
    vec![ok(&LOOPBACK, format!("a batch of two packets to {ADDRESS} arrives")), offload(&exchange)]
}

/// The result of sending the batch.
#[derive(Debug)]
struct LoopbackExchange {
    /// Maximum number of packets into which the kernel segments a send; 1 if it does not segment.
    max_segments: usize,
    /// Both packets arrived with one receive call.
    joined: bool,
}

#[derive(Debug)]
enum LoopbackFailure {
    Open(PortError),
    Send(TransmitError),
    Wait(std::io::Error),
    NoPacket,
    Damaged,
}

impl fmt::Display for LoopbackFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoopbackFailure::Open(error) => error.fmt(f),
            LoopbackFailure::Send(error) => error.fmt(f),
            LoopbackFailure::Wait(error) => error.fmt(f),
            LoopbackFailure::NoPacket => write!(f, "nothing came within {} s", TIMEOUT.as_secs()),
            LoopbackFailure::Damaged => f.write_str("something else came"),
        }
    }
}

fn exchange() -> Result<LoopbackExchange, LoopbackFailure> {
    let config = UdpConfig { port: 0, buffer_bytes: BUFFER_BYTES, ..UdpConfig::new(ADDRESS) };
    let mut sender = UdpPort::bind(&config).map_err(LoopbackFailure::Open)?;
    let mut receiver = UdpPort::bind(&config).map_err(LoopbackFailure::Open)?;
    let flow = Flow {
        source: ADDRESS,
        destination: ADDRESS,
        source_port: sender.port(),
        destination_port: receiver.port(),
    };
    let path = Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
    let sent: Vec<u8> = (0..2 * SEGMENT_BYTES).map(|index| index as u8).collect();
    let batch = GsoBatch::new(&path, SEGMENT_BYTES, &sent);
    sender.transmit(0, &batch).map_err(LoopbackFailure::Send)?;
    let mut arrived = Vec::new();
    let mut batches = 0;
    while arrived.len() < sent.len() {
        if !wait_readable(&receiver.descriptors(), None, Some(TIMEOUT)).map_err(LoopbackFailure::Wait)? {
            return Err(LoopbackFailure::NoPacket);
        }
        receiver.receive(0, &mut |received| {
            batches += 1;
            arrived.extend_from_slice(received.bytes);
        });
    }
    if arrived != sent {
        return Err(LoopbackFailure::Damaged);
    }
    let limits = sender.limits(batch.peer());
    Ok(LoopbackExchange { max_segments: limits.max_segments, joined: batches == 1 })
}

fn offload(exchange: &LoopbackExchange) -> Finding {
    let segments = exchange.max_segments;
    match (segments > 1, exchange.joined) {
        (true, true) => ok(
            &OFFLOAD,
            format!(
                "the kernel cuts batches of up to {segments} packets (UDP_SEGMENT) and delivers them whole \
                (UDP_GRO)"
            ),
        ),
        (true, false) => warning(
            &OFFLOAD,
            "the kernel cuts batches (UDP_SEGMENT) but delivers single packets: receiving is slower",
            "Use Linux 5.0 or newer, where sockets have UDP_GRO.",
        ),
        (false, _) => warning(
            &OFFLOAD,
            "the kernel does not cut batches (UDP_SEGMENT): sending is several times slower",
            "Use Linux 4.18 or newer, and allow the socket option in this container.",
        ),
    }
}

/// Reports the setting, what is possible, and the processes that are reached. Returns nothing if the setting
/// is invalid, because the finding about the device says so.
pub(crate) fn same_host() -> Vec<Finding> {
    SameHost::examine().map(|found| findings(&found)).unwrap_or_default()
}

fn findings(found: &SameHost) -> Vec<Finding> {
    let mut all = vec![ok(&WIRE, found.setting())];
    match found.sharing_possibility() {
        Ok(sentence) => {
            all.push(ok(&SHARED_MEMORY, sentence));
            all.push(ok(&SHARED_MEMORY, format!("reaches {}", found.reach())));
        }
        Err(obstacle) => all.push(warning(
            &SHARED_MEMORY,
            format!("cannot be used, so that all packets go by UDP: {}", obstacle.sentence),
            obstacle.remedy.clone(),
        )),
    }
    all
}

#[cfg(test)]
mod tests {
    use pumice_device::findings::Level;

    use super::*;

    #[test]
    fn loopback_delivers() {
        let findings = loopback();
        assert_eq!(findings[0].level, Level::Ok, "{findings:?}");
    }

    #[test]
    fn missing_offload_is_a_warning() {
        for (max_segments, joined, level) in
            [(128, true, Level::Ok), (64, false, Level::Warning), (1, false, Level::Warning)]
        {
            assert_eq!(offload(&LoopbackExchange { max_segments, joined }).level, level);
        }
    }
}
