//! Chapter 1 of docs/course: register memory, and tell its keys.
//!
//! ```sh
//! cargo run -p pumice-verbs --example course_1_memory
//! ```

use std::net::IpAddr;

use pumice_verbs::{Access, Device, DeviceOptions, Result};

pub(crate) fn run(bytes: usize) -> Result<String> {
    let address = IpAddr::from([127, 90, 11, 1]);
    let device = Device::open(DeviceOptions::new().addresses([address]))?;
    let domain = device.protection_domain()?;
    // The device may write here for this program. Peers may read here, and may not write.
    let memory = domain.allocate(bytes, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
    Ok(format!("{} bytes: lkey 0x{:08x}, rkey 0x{:08x}", memory.len(), memory.lkey(), memory.rkey()))
}

#[expect(clippy::print_stdout, reason = "its result")]
fn main() -> Result<()> {
    println!("{}", run(4096)?);
    Ok(())
}
