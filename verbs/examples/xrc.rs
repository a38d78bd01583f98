//! XRC: a sender reaches every receiver of a host through one connection, and names the receiver in each
//! request by the number of its shared receive queue.
//!
//! ```sh
//! cargo run -p pumice-verbs --example xrc
//! ```

use std::net::IpAddr;
use std::time::Duration;

use pumice_verbs::{
    Access, Device, DeviceOptions, RecvRequest, Result, SendRequest, XrcInitiatorQueuePair,
    XrcTargetQueuePair,
};

const LIMIT: Duration = Duration::from_secs(30);
const RECEIVERS: usize = 3;

/// What each receiver heard.
pub(crate) fn run() -> Result<Vec<String>> {
    let open = |address: [u8; 4]| Device::open(DeviceOptions::new().addresses([IpAddr::from(address)]));
    let (receiver, sender) = (open([127, 90, 3, 1])?, open([127, 90, 3, 2])?);

    // The host of the receivers: a domain, a target for the connection, and a queue for each receiver. With
    // Device::xrc_domain_of_file several processes share the domain, and each has queues of its own.
    let xrcd = receiver.xrc_domain()?;
    let domain = receiver.protection_domain()?;
    let target = XrcTargetQueuePair::builder(&xrcd).build()?;
    let memory = domain.allocate(RECEIVERS * 64, Access::LOCAL_WRITE)?;
    let mut receivers = Vec::new();
    for number in 0..RECEIVERS {
        let cq = receiver.completion_queue(4)?;
        let srq = xrcd.shared_receive_queue(&domain, &cq, 4, 1)?;
        let buffer = memory.slice(number * 64..number * 64 + 64)?;
        srq.post_recv(&RecvRequest { wr_id: number as u64, sges: &[buffer] })?;
        receivers.push((cq, srq));
    }

    let sender_domain = sender.protection_domain()?;
    let sender_cq = sender.completion_queue(16)?;
    let initiator = XrcInitiatorQueuePair::builder(&sender_domain, &sender_cq).build()?;
    initiator.connect(&target.endpoint(), &Default::default())?;
    target.connect(&initiator.endpoint(), &Default::default())?;

    let mut received = Vec::new();
    for (number, (cq, srq)) in receivers.iter().enumerate() {
        let message = format!("to receiver {number}");
        let send = SendRequest::send(&[]).remote_srq(srq.number()?).inline(message.as_bytes());
        initiator.post_send(&send.signaled())?;
        sender_cq.wait_success(LIMIT)?;
        let arrived = cq.wait_success(LIMIT)?;
        let bytes = memory.to_vec(arrived.wr_id as usize * 64, arrived.byte_len as usize)?;
        received.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(received)
}

#[expect(clippy::print_stdout, reason = "its result")]
fn main() -> Result<()> {
    run()?.iter().for_each(|received| println!("{received}"));
    Ok(())
}
