//! Datagrams: one queue pair hears of many senders, and answers each by what its datagram says of it.
//!
//! ```sh
//! cargo run -p pumice-verbs --example datagrams
//! ```

use std::net::IpAddr;
use std::time::Duration;

use pumice_verbs::{
    Access, CompletionQueue, Device, DeviceOptions, Gid, MemoryRegion, ProtectionDomain, Qpn, RecvRequest,
    Result, SendRequest, UdEndpoint, UdQueuePair,
};

const LIMIT: Duration = Duration::from_secs(30);
/// Datagrams with another Q_Key are dropped.
const QKEY: u32 = 0x1111_1111;
/// In front of what a datagram carries there is room for its addresses.
const GRH_BYTES: usize = 40;
/// Where the sender's address is in there, if it is an IPv4 address.
const SOURCE_AT: usize = 32;

struct Peer {
    domain: ProtectionDomain,
    cq: CompletionQueue,
    memory: MemoryRegion,
    qp: UdQueuePair,
}

fn side(address: [u8; 4]) -> Result<Peer> {
    let device = Device::open(DeviceOptions::new().addresses([IpAddr::from(address)]))?;
    let domain = device.protection_domain()?;
    let cq = device.completion_queue(16)?;
    let memory = domain.allocate(4096, Access::LOCAL_WRITE)?;
    let qp = UdQueuePair::builder(&domain, &cq, &cq).build()?;
    qp.activate(QKEY)?;
    Ok(Peer { domain, cq, memory, qp })
}

/// What the client heard.
pub(crate) fn run() -> Result<String> {
    let (server, client) = (side([127, 90, 1, 1])?, side([127, 90, 1, 2])?);
    server.qp.post_recv(&RecvRequest { wr_id: 1, sges: &[server.memory.slice(..256)?] })?;
    client.qp.post_recv(&RecvRequest { wr_id: 2, sges: &[client.memory.slice(..256)?] })?;

    // The client must know the server's address, queue pair number and Q_Key: 24 bytes.
    let endpoint = UdEndpoint::from_bytes(&server.qp.endpoint()?.to_bytes());
    let there = client.domain.ud_address(&endpoint)?;
    client.qp.post_send(&SendRequest::send_to(&there, &[]).inline(b"who is there?"))?;

    // The completion names the sender's queue pair, and the bytes in front of the message have its address.
    let arrived = server.cq.wait_success(LIMIT)?;
    let length = arrived.byte_len as usize - GRH_BYTES;
    let question = server.memory.to_vec(GRH_BYTES, length)?;
    let mut address = [0; 4];
    server.memory.read(SOURCE_AT, &mut address)?;
    let sender =
        UdEndpoint { gid: Gid::from(IpAddr::from(address)), qpn: Qpn::new(arrived.src_qp), qkey: QKEY };
    let back = server.domain.ud_address(&sender)?;
    let answer = [b"heard: ", question.as_slice()].concat();
    server.qp.post_send(&SendRequest::send_to(&back, &[]).inline(&answer))?;

    let arrived = client.cq.wait_success(LIMIT)?;
    let length = arrived.byte_len as usize - GRH_BYTES;
    Ok(String::from_utf8_lossy(&client.memory.to_vec(GRH_BYTES, length)?).into_owned())
}

#[expect(clippy::print_stdout, reason = "its result")]
fn main() -> Result<()> {
    println!("{}", run()?);
    Ok(())
}
