//! Examines the real device, opened as programs open it: with the settings of the environment, the shared
//! port, the folder, and the memory that processes share. Then two queue pairs of it exchange bytes.

use std::time::Duration;

use pumice_device::findings::Finding;
use pumice_device::settings::Settings;
use pumice_device::sharing::runtime_folder;
use pumice_verbs::{Access, Device, DeviceOptions, RcQueuePair, SendRequest};

use super::kind::{DEVICE, FOLDER, blocking, ok};

const BYTES: usize = 10_000;
const TIMEOUT: Duration = Duration::from_secs(5);

/// Opens the device, moves bytes, and reports the registry through which this user's processes find each
/// other.
pub(crate) fn device() -> Vec<Finding> {
    let settings = match Settings::from_environment() {
        Ok(settings) => settings,
        Err(error) => {
            let remedy = "Correct the variable, or unset it: programs are refused the device with it.";
            return vec![blocking(&DEVICE, error.to_string(), remedy)];
        }
    };
    let mut options = DeviceOptions::new();
    if let Some(address) = settings.addresses.first() {
        options = options.addresses([*address]);
    }
    let mut findings = vec![match exchange(options) {
        Ok(()) => ok(&DEVICE, format!("opens, and {BYTES} bytes arrive by RDMA WRITE")),
        Err(problem) => blocking(
            &DEVICE,
            format!("a program would fail: {problem}"),
            "Remedy what the sentence names; writable folders are looked for in $XDG_RUNTIME_DIR, \
            /run/user/UID and /tmp.",
        ),
    }];
    match runtime_folder() {
        Ok(folder) => {
            findings.push(ok(&FOLDER, format!("processes meet in {}", folder.display())));
        }
        Err(error) => findings.push(blocking(
            &FOLDER,
            error.to_string(),
            "Set XDG_RUNTIME_DIR to a folder of yours that can be written.",
        )),
    }
    findings
}

/// Writes from one queue pair of a device to another one of the same device.
fn exchange(options: DeviceOptions) -> Result<(), String> {
    fn sentence(error: impl std::fmt::Display) -> String {
        error.to_string()
    }
    let device = Device::open(options).map_err(sentence)?;
    let domain = device.protection_domain().map_err(sentence)?;
    let cq = device.completion_queue(16).map_err(sentence)?;
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let (source, target) =
        (domain.allocate(BYTES, all).map_err(sentence)?, domain.allocate(BYTES, all).map_err(sentence)?);
    let bytes: Vec<u8> = (0..BYTES).map(|index| (index % 251) as u8).collect();
    source.write(0, &bytes).map_err(sentence)?;
    let make = || RcQueuePair::builder(&domain, &cq, &cq).build().map_err(sentence);
    let (left, right) = (make()?, make()?);
    left.connect(&right.endpoint(), &Default::default()).map_err(sentence)?;
    right.connect(&left.endpoint(), &Default::default()).map_err(sentence)?;
    let local = [source.slice(..BYTES).map_err(sentence)?];
    left.post_send(&SendRequest::write(&local, target.remote()).signaled()).map_err(sentence)?;
    cq.wait_success(TIMEOUT).map_err(sentence)?;
    if target.to_vec(0, BYTES).map_err(sentence)? == bytes {
        Ok(())
    } else {
        Err("other bytes arrived".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_move_through_the_shared_port_of_an_address() {
        let [high, low] = (std::process::id() as u16).to_be_bytes();
        let address = std::net::IpAddr::from([127, 200 + high % 40, low, 9]);
        assert_eq!(exchange(DeviceOptions::new().addresses([address])), Ok(()));
    }

    #[test]
    fn an_address_of_another_host_is_a_problem() {
        let address = "192.0.2.77".parse().expect("an address");
        assert!(exchange(DeviceOptions::new().addresses([address])).is_err());
    }
}
