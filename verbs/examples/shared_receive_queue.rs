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
        let client_qp = RcQueuePair::builder(&client_domain, &client_cq, &client_cq).build()?;
        client_qp.connect(&accepts.endpoint(), &Default::default())?;
        accepts.connect(&client_qp.endpoint(), &Default::default())?;
        pairs.push((client_qp, accepts));
    }
    let (mut received, mut was_low) = (Vec::new(), 0);
    for round in 0..3 {
        for (number, (client_qp, _)) in pairs.iter().enumerate() {
            let message = format!("client {number}, round {round}");
            client_qp.post_send(&SendRequest::send(&[]).inline(message.as_bytes()).signaled())?;
            client_cq.wait_success(LIMIT)?;
            let arrived = server_cq.wait_success(LIMIT)?;
            let at = (arrived.wr_id * BUFFER_BYTES) as usize;
            let bytes = memory.to_vec(at, arrived.byte_len as usize)?;
            received.push((arrived.wr_id, String::from_utf8_lossy(&bytes).into_owned()));
        }
        // The first two rounds took all buffers but three; after an event the stock is filled up again.
        if received.len() as u64 > BUFFERS - u64::from(LOW) && was_low == 0 {
            while server.async_event(LIMIT)?.event != AsyncEventType::SrqLimitReached {}
            was_low += 1;
            for (number, _) in &received {
                srq.post_recv(&RecvRequest { wr_id: *number, sges: &[buffer(*number)?] })?;
            }
        }
    }
    Ok((was_low, received.into_iter().map(|(_, message)| message).collect()))
}

#[expect(clippy::print_stdout, reason = "its result")]
fn main() -> Result<()> {
    let (was_low, received) = run()?;
    println!("{}\nthe stock was low {was_low} times", received.join("\n"));
    Ok(())
}
