//! Examines whether worlds work here, by running a program in one.

use std::ffi::OsString;
use std::path::Path;

use pumice_device::findings::Finding;
use pumice_world::{Ended, Exit, WorldError, WorldOptions};

use super::kind::{WORLDS, ok, warning};
use crate::run::own_program;

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
