//! Chapter 3 of docs/course: one end sends three messages, the other receives them.
//!
//! ```sh
//! cargo run -p pumice-verbs --example course_3_messages
//! ```

use std::net::IpAddr;
use std::time::Duration;

use pumice_verbs::{Access, Device, DeviceOptions, RcQueuePair, RecvRequest, Result, SendRequest};

const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn run() -> Result<Vec<String>> {
    let address = IpAddr::from([127, 90, 13, 1]);
    let device = Device::open(DeviceOptions::new().addresses([address]))?;
    let domain = device.protection_domain()?;
    let (sender_cq, receiver_cq) = (device.completion_queue(8)?, device.completion_queue(8)?);
    let sender = RcQueuePair::builder(&domain, &sender_cq, &sender_cq).build()?;
    let receiver = RcQueuePair::builder(&domain, &receiver_cq, &receiver_cq).build()?;
    sender.connect(&receiver.endpoint(), &Default::default())?;
    receiver.connect(&sender.endpoint(), &Default::default())?;

    let from = domain.allocate(3 * 64, Access::empty())?;
    let to = domain.allocate(3 * 64, Access::LOCAL_WRITE)?;
    // The receives are there before the first message.
    for k in 0..3 {
        receiver.post_recv(&RecvRequest {
            wr_id: k,
            sges: &[to.slice(k as usize * 64..(k as usize + 1) * 64)?],
        })?;
    }
    for k in 0..3 {
        let text = format!("message {k}");
        from.write(k * 64, text.as_bytes())?;
        let local = [from.slice(k * 64..k * 64 + text.len())?];
        sender.post_send(&SendRequest::send(&local).wr_id(k as u64).signaled())?;
    }
    let mut received = Vec::new();
    for _ in 0..3 {
        sender_cq.wait_success(LIMIT)?;
        let arrived = receiver_cq.wait_success(LIMIT)?;
        let bytes = to.to_vec(arrived.wr_id as usize * 64, arrived.byte_len as usize)?;
        received.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(received)
}

#[expect(clippy::print_stdout, reason = "its result")]
fn main() -> Result<()> {
    println!("{}", run()?.join("\n"));
    Ok(())
}
