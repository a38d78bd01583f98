//! `pumice doctor`: finds what keeps the device from working on this machine, and the remedy.

mod device;
mod kernel;
mod kind;
mod loopback;
mod port;

use std::io::Write;
use std::path::Path;

use pumice_device::findings::text::{Column, Table};
use pumice_device::findings::{Fields, Finding, Level, json};
use pumice_transport::types::Mtu;

use crate::cli::DoctorOptions;
use crate::devices;
use crate::outcome::{CommandResult, Outcome};
use kind::{ADDRESSES, GID, PATH_MTU, blocking, ok};

/// Runs the command.
pub(crate) fn run(options: &DoctorOptions, out: &mut dyn Write) -> CommandResult {
    let findings = examine(Path::new("/proc"), Path::new("/sys"));
    let works = findings.iter().all(|finding| finding.level < Level::Error);
    if options.json {
        let all: Vec<Fields> = findings.iter().map(object).collect();
        let report = Fields::default().with("works", works).with("findings", all);
        out.write_all(json::indented(&report).as_bytes())?;
    } else {
        print(&findings, out)?;
    }
    Ok(if works { Outcome::Good } else { Outcome::Bad })
}

/// Returns a finding as a JSON object.
fn object(finding: &Finding) -> Fields {
    let fields = Fields::default()
        .with("check", finding.kind.name)
        .with("level", level(finding.level))
        .with("found", finding.sentence.as_str());
    match &finding.remedy {
        Some(remedy) => fields.with("remedy", remedy.as_str()),
        None => fields,
    }
}

/// Returns the doctor's name for a level.
fn level(level: Level) -> &'static str {
    if level == Level::Error { "blocking" } else { level.name() }
}

/// Examines everything, in the order in which it is printed.
fn examine(proc: &Path, sys: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let soft_roce = kernel::soft_roce(sys);
    findings.push(kernel::soft_roce_finding(&soft_roce));
    match devices::gid_table() {
        Ok(table) if table.is_empty() => findings.push(blocking(
            &ADDRESSES,
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
        Err(error) => findings.push(blocking(
            &ADDRESSES,
            format!("the interfaces cannot be listed: {error}"),
            "Allow netlink or getifaddrs in this container's seccomp profile.",
        )),
    }
    findings.extend(device::start());
    findings.extend(device::device());
    findings.extend(loopback::same_host());
    findings.extend(loopback::loopback());
    findings.extend(kernel::socket_buffers(proc));
    findings.push(device::worlds());
    findings
}

fn gid_finding(gid: &devices::GidEntry) -> Finding {
    let name = format!("{} on {}", gid.address, gid.interface);
    ok(&GID, format!("index {}: {} ({name})", gid.index, gid.gid()))
}

fn path_mtu(gid: &devices::GidEntry) -> Finding {
    let (interface, link) = (&gid.interface, gid.link_mtu_bytes);
    match Mtu::largest_for_link(link) {
        Some(mtu) => ok(&PATH_MTU, format!("{interface}: {} (link MTU {link})", mtu.bytes())),
        None => blocking(
            &PATH_MTU,
            format!("{interface}: the link MTU {link} is too small for any RoCE path MTU"),
            format!("Raise it: ip link set {interface} mtu 1500."),
        ),
    }
}

fn print(findings: &[Finding], out: &mut dyn Write) -> std::io::Result<()> {
    let mark = |finding: &Finding| match finding.level {
        Level::Error => "BLOCKING".to_owned(),
        other => level(other).to_owned(),
    };
    let columns = [
        Column::new("", 8, |_, finding| mark(finding)),
        Column::new("", 14, |_, finding| finding.kind.name.to_owned()),
        Column::new("", 0, |_, finding| finding.sentence.clone()),
    ];
    let table = Table { columns: &columns, gap: 2, has_titles: false, is_spaced: false, has_remedies: true };
    table.write(findings, out)?;
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    match (count(Level::Error), count(Level::Warning)) {
        (0, 0) => writeln!(out, "\nThe device works here."),
        (0, warnings) => writeln!(out, "\nThe device works here, with {warnings} warning(s)."),
        (blocking, _) => writeln!(out, "\nThe device does not work here: {blocking} blocking problem(s)."),
    }
}

#[cfg(test)]
mod tests {
    use super::kind::{FOLDER, LOOPBACK, warning};
    use super::*;

    #[test]
    fn every_problem_has_a_remedy_and_shows_it() {
        let findings = [
            ok(&GID, "fine"),
            warning(&FOLDER, "slow", "Do this."),
            blocking(&LOOPBACK, "stuck", "Do that."),
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
        // A machine where nothing is readable is described without a panic.
        assert!(!examine(Path::new("/nonexistent"), Path::new("/nonexistent")).is_empty());
    }
}
