//! Examines the real device, what `pumice run` needs to start a program, and whether worlds work.
//!
//! Examines the real device, opened as programs open it: with the settings of the environment, the shared
//! port, the folder, and the memory that processes share. Then two queue pairs of it exchange bytes.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use pumice_device::findings::Finding;
use pumice_device::settings::Settings;
use pumice_device::sharing::runtime_folder;
use pumice_verbs::{Access, Device, DeviceOptions, RcQueuePair, SendRequest};
use pumice_world::{Ended, Exit, WorldError, WorldOptions};

use super::kind::{DEVICE, FOLDER, LIBRARY, WORLDS, blocking, ok, warning};
use crate::run::{loaded_objects, own_program};

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

/// Finds the libraries as `pumice run` does, and makes the folder with links to them as it does.
pub(crate) fn start() -> Vec<Finding> {
    let found = match loaded_objects() {
        Ok(found) => found,
        Err(sentence) => {
            let remedy = "Install the whole of pumice (its package, or the whole archive): \
                          pumice run, check and world need its libraries beside it.";
            return vec![blocking(&LIBRARY, format!("pumice run would fail: {sentence}"), remedy)];
        }
    };
    let mut findings = vec![ok(
        &LIBRARY,
        format!("programs load {}, by the names in {}", found.object.display(), found.folder.display()),
    )];
    findings.extend(found.missing.into_iter().map(|sentence| {
        let remedy =
            "Put it beside libpumice.so: it comes with the same package or build (cargo build --workspace).";
        warning(&LIBRARY, sentence, remedy)
    }));
    findings
}

const MACHINE_REMEDY: &str = "Run pumice world on x86-64 with Linux; all else works here.";
const PTRACE_REMEDY: &str = "Allow ptrace and seccomp filters: in a container, give it the capability \
                         SYS_PTRACE (docker run --cap-add SYS_PTRACE) and a seccomp profile that has them; \
                         on a host, lower /proc/sys/kernel/yama/ptrace_scope below 3. All but pumice world \
                         works without.";
const NAMESPACES_REMEDY: &str = "Allow name spaces of users: sysctl user.max_user_namespaces=10000, \
                              kernel.apparmor_restrict_unprivileged_userns=0 where the system has it, and \
                              in a container a seccomp profile that allows unshare. A world works without, \
                              and a run in it repeats less surely.";

/// Runs this program, which prints its version, in a world.
pub(crate) fn worlds() -> Finding {
    let has_proc = Path::new("/proc/self").exists();
    let Some(own) = own_program().ok().filter(|_| has_proc) else {
        return warning(&WORLDS, "pumice world fails here: there is no /proc", "Mount /proc.");
    };
    let mut options = WorldOptions::new(0, vec![own.into_os_string(), OsString::from("--version")]);
    options.output = Some("/dev/null".into());
    judge(&pumice_world::run(&options))
}

/// Returns the finding that the result of the world implies for this machine.
fn judge(ended: &Result<Ended, WorldError>) -> Finding {
    let fails = |problem: String, remedy: &str| {
        warning(&WORLDS, format!("pumice world fails here: {problem}"), remedy)
    };
    match ended {
        Err(error) if cfg!(not(all(target_os = "linux", target_arch = "x86_64"))) => {
            fails(error.to_string(), MACHINE_REMEDY)
        }
        Err(error) => fails(error.to_string(), PTRACE_REMEDY),
        Ok(Ended { exit: Exit::Code(0), certificate, .. }) => match certificate.doubts.first() {
            None => ok(&WORLDS, "pumice world works: a program ran in one, and its run is sure to repeat"),
            Some(doubt) => warning(
                &WORLDS,
                format!("pumice world works, and its runs are not sure to repeat: {doubt}"),
                NAMESPACES_REMEDY,
            ),
        },
        Ok(Ended { exit: Exit::Code(code), .. }) => {
            fails(format!("a program that works ended with {code}"), PTRACE_REMEDY)
        }
        Ok(Ended { exit: Exit::Signal(signal), .. }) => {
            fails(format!("signal {signal} ended a program that works"), PTRACE_REMEDY)
        }
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
