//! Chapter 5 of docs/course: 1000 messages, and no more than the peer has room for. Both ends sleep until a
//! completion comes: `wait_success` arms, polls once more, and only then sleeps.
//!
//! ```sh
//! cargo run -p pumice-verbs --example course_5_events
//! ```

use std::net::IpAddr;
use std::time::Duration;

use pumice_verbs::{
    Access, CompletionQueue, Device, DeviceOptions, LocalSlice, RcQueuePair, RecvRequest, Result, SendRequest,
};

const LIMIT: Duration = Duration::from_secs(30);
const MESSAGES: u32 = 1000;
const WINDOW: u32 = 16;
const PART: u32 = 8;
/// The kind of the requests that receive; others are sends.
const RECEIVE: u64 = 1;

struct ConnectionEnd {
    cq: CompletionQueue,
    qp: RcQueuePair,
    memory: [LocalSlice; 1],
}

impl ConnectionEnd {
    fn post_receive(&self) -> Result<()> {
        self.qp.post_recv(&RecvRequest { wr_id: RECEIVE, sges: &self.memory })
    }
}

/// Gives room for as many more as it has received, again and again.
fn receive_all(end: &ConnectionEnd) -> Result<()> {
    let mut received = 0;
    while received < MESSAGES {
        if end.cq.wait_success(LIMIT)?.wr_id == RECEIVE {
            end.post_receive()?;
            received += 1;
            if received % PART == 0 {
                end.qp.post_send(&SendRequest::send(&end.memory).imm(PART.to_be_bytes()).signaled())?;
            }
        }
    }
    Ok(())
}

/// How often the sender was given more room.
pub(crate) fn run() -> Result<u32> {
    let address = IpAddr::from([127, 90, 15, 1]);
    let device = Device::open(DeviceOptions::new().addresses([address]))?;
    let domain = device.protection_domain()?;
    let memory = domain.allocate(128, Access::LOCAL_WRITE)?;
    let end = |offset: usize| -> Result<ConnectionEnd> {
        let cq = device.completion_queue(64)?;
        let qp = RcQueuePair::builder(&domain, &cq, &cq).build()?;
        Ok(ConnectionEnd { cq, qp, memory: [memory.slice(offset..offset + 64)?] })
    };
    let (sender, receiver) = (end(0)?, end(64)?);
    sender.qp.connect(&receiver.qp.endpoint(), &Default::default())?;
    receiver.qp.connect(&sender.qp.endpoint(), &Default::default())?;
    for _ in 0..WINDOW {
        sender.post_receive()?;
        receiver.post_receive()?;
    }
    std::thread::scope(|scope| {
        let received = scope.spawn(|| receive_all(&receiver));
        let (mut sent, mut room, mut unended, mut credits) = (0, WINDOW, 0, 0);
        while sent < MESSAGES || unended > 0 || credits < MESSAGES / PART {
            if sent < MESSAGES && unended < WINDOW && room > 0 {
                (sent, room, unended) = (sent + 1, room - 1, unended + 1);
                let request = SendRequest::send(&sender.memory);
                let is_last = sent % PART == 0;
                sender.qp.post_send(&if is_last { request.signaled() } else { request })?;
                continue;
            }
            let completion = sender.cq.wait_success(LIMIT)?;
            if completion.wr_id == RECEIVE {
                room += PART;
                credits += 1;
                sender.post_receive()?;
            } else {
                unended -= PART; // one completion tells of this request and of those before it
            }
        }
        received.join().expect("the receiver does not panic")?;
        Ok(credits)
    })
}

#[expect(clippy::print_stdout, reason = "its result")]
fn main() -> Result<()> {
    println!("{MESSAGES} messages, {} times more room", run()?);
    Ok(())
}
