//! Chapter 2 of docs/course: two queue pairs, connected with each other. `connect` goes from RESET over INIT
//! and RTR to RTS, and forgets no attribute.
//!
//! ```sh
//! cargo run -p pumice-verbs --example course_2_states
//! ```

use std::net::IpAddr;

use pumice_verbs::{Device, DeviceOptions, RcQueuePair, Result};

pub(crate) fn run() -> Result<Vec<String>> {
    let address = IpAddr::from([127, 90, 12, 1]);
    let device = Device::open(DeviceOptions::new().addresses([address]))?;
    let domain = device.protection_domain()?;
    let cq = device.completion_queue(4)?;
    let one = RcQueuePair::builder(&domain, &cq, &cq).build()?;
    let other = RcQueuePair::builder(&domain, &cq, &cq).build()?;
    let mut states = vec![format!("{:?}", one.state()?)];
    one.connect(&other.endpoint(), &Default::default())?;
    other.connect(&one.endpoint(), &Default::default())?;
    states.push(format!("{:?}", one.state()?));
    Ok(states)
}

#[expect(clippy::print_stdout, reason = "its result")]
fn main() -> Result<()> {
    println!("{}", run()?.join("\n"));
    Ok(())
}
