//! `pumice doctor`: what keeps the device from working on this machine, and what to do about it.

mod device;
mod finding;
mod kernel;
mod loopback;
mod port;
mod same_host;

use std::io::Write;
use std::path::Path;

use pumice_transport::types::Mtu;
use serde::Serialize;

use crate::cli::DoctorOptions;
use crate::devices;
use crate::outcome::{CommandResult, Outcome};
use finding::{Finding, Level};

/// Runs the command.
pub(crate) fn run(options: &DoctorOptions, out: &mut dyn Write) -> CommandResult {
    let findings = examine(Path::new("/proc"), Path::new("/sys"));
    let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
    if options.json {
        #[derive(Serialize)]
        struct Report<'a> {
            works: bool,
            findings: &'a [Finding],
        }
        let report = Report { works: worst < Level::Blocking, findings: &findings };
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        print(&findings, out)?;
    }
    Ok(if worst < Level::Blocking { Outcome::Good } else { Outcome::Bad })
}

/// Everything looked at, in the order it is shown.
fn examine(proc: &Path, sys: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let soft_roce = kernel::soft_roce(sys);
    findings.push(kernel::soft_roce_finding(&soft_roce));
    match devices::gid_table() {
        Ok(table) if table.is_empty() => findings.push(Finding::blocking(
            "addresses",
            "no interface that is up has an IP address",
            "Bring the loopback interface up: ip link set lo up.",
        )),
        Ok(table) => {
            findings.extend(table.iter().map(|gid| port::udp_port(gid.address, proc, &soft_roce)));
            findings.extend(table.iter().map(gid_finding));
            let mut interfaces = Vec::new();
            for gid in &table {
                if !interfaces.contains(&&gid.interface) {
                    interfaces.push(&gid.interface);
                    findings.push(path_mtu(gid));
                }
            }
        }
        Err(error) => findings.push(Finding::blocking(
            "addresses",
            format!("the interfaces cannot be listed: {error}"),
            "Allow netlink or getifaddrs in this container's seccomp profile.",
        )),
    }
    findings.extend(device::device());
    findings.extend(same_host::same_host());
    findings.extend(loopback::loopback());
    findings.extend(kernel::socket_buffers(proc));
    findings
}

fn gid_finding(gid: &devices::GidEntry) -> Finding {
    let name = format!("{} on {}", gid.address, gid.interface);
    Finding::ok("gid", format!("index {}: {} ({name})", gid.index, gid.gid()))
}

fn path_mtu(gid: &devices::GidEntry) -> Finding {
    let (interface, link) = (&gid.interface, gid.link_mtu_bytes);
    match Mtu::largest_for_link(link) {
        Some(mtu) => Finding::ok("path MTU", format!("{interface}: {} (link MTU {link})", mtu.bytes())),
        None => Finding::blocking(
            "path MTU",
            format!("{interface}: the link MTU {link} is too small for any RoCE path MTU"),
            format!("Raise it: ip link set {interface} mtu 1500."),
        ),
    }
}

fn print(findings: &[Finding], out: &mut dyn Write) -> std::io::Result<()> {
    for finding in findings {
        let mark = match finding.level {
            Level::Ok => "ok      ",
            Level::Warning => "warning ",
            Level::Blocking => "BLOCKING",
        };
        writeln!(out, "{mark}  {:<14}  {}", finding.check, finding.found)?;
        if let Some(remedy) = &finding.remedy {
            writeln!(out, "{:26}→ {remedy}", "")?;
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    match (count(Level::Blocking), count(Level::Warning)) {
        (0, 0) => writeln!(out, "\nThe device works here."),
        (0, warnings) => writeln!(out, "\nThe device works here, with {warnings} warning(s)."),
        (blocking, _) => writeln!(out, "\nThe device does not work here: {blocking} blocking problem(s)."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_has_a_remedy_and_shows_it() {
        let findings = [
            Finding::ok("a", "fine"),
            Finding::warning("b", "slow", "Do this."),
            Finding::blocking("c", "stuck", "Do that."),
        ];
        let mut out = Vec::new();
        print(&findings, &mut out).expect("a Vec takes everything");
        let text = String::from_utf8(out).expect("findings are text");
        assert!(text.contains("→ Do this.") && text.contains("→ Do that."), "{text}");
        assert!(text.ends_with("1 blocking problem(s).\n"), "{text}");
    }

    #[test]
    fn this_machine_can_be_examined() {
        for finding in examine(Path::new("/proc"), Path::new("/sys")) {
            assert_eq!(finding.remedy.is_none(), finding.level == Level::Ok, "{finding:?}");
        }
        // Nothing readable at all is described, not a panic.
        assert!(!examine(Path::new("/nonexistent"), Path::new("/nonexistent")).is_empty());
    }
}
