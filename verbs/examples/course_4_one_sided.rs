//! Chapter 4 of docs/course: WRITE, READ and FETCH_AND_ADD. The peer does nothing.
//!
//! ```sh
//! cargo run -p pumice-verbs --example course_4_one_sided
//! ```

use std::net::IpAddr;
use std::time::Duration;

use pumice_verbs::{Access, Device, DeviceOptions, RcQueuePair, Result, SendRequest};

const LIMIT: Duration = Duration::from_secs(30);

/// What was read back, and what the counter was before each of three additions of 10.
pub(crate) fn run() -> Result<(String, Vec<u64>)> {
    let open = |address: [u8; 4]| Device::open(DeviceOptions::new().addresses([IpAddr::from(address)]));
    let (requester, owner) = (open([127, 90, 14, 1])?, open([127, 90, 14, 2])?);
    let (requester_domain, owner_domain) = (requester.protection_domain()?, owner.protection_domain()?);
    let (cq, owner_cq) = (requester.completion_queue(8)?, owner.completion_queue(8)?);
    let asks = RcQueuePair::builder(&requester_domain, &cq, &cq).build()?;
    let owns = RcQueuePair::builder(&owner_domain, &owner_cq, &owner_cq).build()?;
    asks.connect(&owns.endpoint(), &Default::default())?;
    owns.connect(&asks.endpoint(), &Default::default())?;

    let local = requester_domain.allocate(256, Access::LOCAL_WRITE)?;
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let owned = owner_domain.allocate(4096, rights)?;
    // Addresses and a key, which the owner would send to the asker.
    let (counter, text) = (owned.remote_slice(..8)?, owned.remote_slice(64..84)?);

    local.write(0, b"written by the asker")?;
    asks.post_send(&SendRequest::write(&[local.slice(..20)?], text).signaled())?;
    cq.wait_success(LIMIT)?;
    asks.post_send(&SendRequest::read(&[local.slice(64..84)?], text).signaled())?;
    cq.wait_success(LIMIT)?;
    let back = String::from_utf8_lossy(&local.to_vec(64, 20)?).into_owned();

    let mut before = Vec::new();
    for _ in 0..3 {
        let result = [local.slice(128..136)?];
        asks.post_send(&SendRequest::fetch_add(&result, counter, 10).signaled())?;
        cq.wait_success(LIMIT)?;
        let bytes = local.to_vec(128, 8)?;
        before.push(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)));
    }
    Ok((back, before))
}

#[expect(clippy::print_stdout, reason = "its result")]
fn main() -> Result<()> {
    let (back, before) = run()?;
    println!("read back: {back}\nthe counter was {before:?}");
    Ok(())
}
