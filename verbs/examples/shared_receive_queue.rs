//! A shared receive queue: one stock of buffers for many connections, filled again when the device says that
//! it is low.
//!
//! ```sh
//! cargo run -p pumice-verbs --example shared_receive_queue
//! ```

use std::net::IpAddr;
use std::time::Duration;

use pumice_verbs::{
    Access, AsyncEventType, Device, DeviceOptions, RcQueuePair, RecvRequest, Result, SendRequest,
};

const LIMIT: Duration = Duration::from_secs(30);
const CLIENTS: usize = 4;
const BUFFERS: u64 = 8;
const BUFFER_BYTES: u64 = 64;
/// With fewer buffers left the device raises an event, once.
const LOW: u32 = 3;

/// How often the stock was low, and what arrived.
pub(crate) fn run() -> Result<(usize, Vec<String>)> {
    let open = |address: [u8; 4]| Device::open(DeviceOptions::new().addresses([IpAddr::from(address)]));
    let (server, client) = (open([127, 90, 2, 1])?, open([127, 90, 2, 2])?);
    let (server_domain, client_domain) = (server.protection_domain()?, client.protection_domain()?);
    let (server_cq, client_cq) = (server.completion_queue(64)?, client.completion_queue(64)?);

    let srq = server_domain.shared_receive_queue(BUFFERS as u32, 1)?;
    let memory = server_domain.allocate((BUFFERS * BUFFER_BYTES) as usize, Access::LOCAL_WRITE)?;
    let buffer = |number: u64| {
        let begin = (number * BUFFER_BYTES) as usize;
        memory.slice(begin..begin + BUFFER_BYTES as usize)
    };
    for number in 0..BUFFERS {
        srq.post_recv(&RecvRequest { wr_id: number, sges: &[buffer(number)?] })?;
    }
    srq.arm_limit(LOW)?;

    let mut pairs = Vec::new();
    for _ in 0..CLIENTS {
        let builder = RcQueuePair::builder(&server_domain, &server_cq, &server_cq);
        let accepts = builder.shared_receive_queue(&srq).build()?;
        let asks = RcQueuePair::builder(&client_domain, &client_cq, &client_cq).build()?;
        asks.connect(&accepts.endpoint(), &Default::default())?;
        accepts.connect(&asks.endpoint(), &Default::default())?;
        pairs.push((asks, accepts));
    }
    let (mut heard, mut was_low) = (Vec::new(), 0);
    for round in 0..3 {
        for (number, (asks, _)) in pairs.iter().enumerate() {
            let said = format!("client {number}, round {round}");
            asks.post_send(&SendRequest::send(&[]).inline(said.as_bytes()).signaled())?;
            client_cq.wait_success(LIMIT)?;
            let arrived = server_cq.wait_success(LIMIT)?;
            let at = (arrived.wr_id * BUFFER_BYTES) as usize;
            let bytes = memory.to_vec(at, arrived.byte_len as usize)?;
            heard.push((arrived.wr_id, String::from_utf8_lossy(&bytes).into_owned()));
        }
        // The first two rounds took all buffers but three; after an event the stock is filled up again.
        if heard.len() as u64 > BUFFERS - u64::from(LOW) && was_low == 0 {
            while server.async_event(LIMIT)?.event != AsyncEventType::SrqLimitReached {}
            was_low += 1;
            for (number, _) in &heard {
                srq.post_recv(&RecvRequest { wr_id: *number, sges: &[buffer(*number)?] })?;
            }
        }
    }
    Ok((was_low, heard.into_iter().map(|(_, said)| said).collect()))
}

#[expect(clippy::print_stdout, reason = "its result")]
fn main() -> Result<()> {
    let (was_low, heard) = run()?;
    println!("{}\nthe stock was low {was_low} times", heard.join("\n"));
    Ok(())
}
