//! Programs of libmrc on the object, and its headers against tables of what programs expect.

mod kit;

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

const LAYOUT: &str = include_str!("data/mrc/abi.tsv");
const NUMBERS: &str = include_str!("data/mrc/enums.tsv");

fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split('\t').collect())
}

fn include() -> String {
    format!("-I{}/include", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_headers_have_the_layouts_and_numbers_that_programs_expect() {
    let mut source = String::from("#include <pumice/mrc_ctl.h>\n#include <stddef.h>\n");
    let mut count = 0;
    for row in rows(LAYOUT) {
        let [kind, member, offset, size] = row[..] else { panic!("{row:?}") };
        count += 1;
        match member {
            "-" => writeln!(source, "_Static_assert(sizeof(struct {kind}) == {size}, \"{kind}\");"),
            _ => writeln!(
                source,
                "_Static_assert(offsetof(struct {kind}, {member}) == {offset} && \
                 sizeof(((struct {kind} *)0)->{member}) == {size}, \"{kind}.{member}\");"
            ),
        }
        .unwrap();
    }
    for row in rows(NUMBERS) {
        let [_, _, name, value] = row[..] else { panic!("{row:?}") };
        count += 1;
        writeln!(source, "_Static_assert((unsigned){name} == {value}u, \"{name}\");").unwrap();
    }
    assert!(count > 200, "{count}");
    let file = kit::scratch("mrc-headers").join("headers.c");
    fs::write(&file, source).unwrap();
    kit::build(Command::new("cc").args(["-std=gnu11", "-fsyntax-only", &include()]).arg(&file));
}

/// Compiles a program; `links` has the flags of the linker beside those of verbs.
fn compile(name: &str, links: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let program = kit::scratch(name).join(name);
    let flags = ["-std=gnu11", "-Wall", "-Werror", "-O1", "-pthread", &include(), "-o"];
    let mut cc = Command::new("cc");
    cc.args(flags).arg(&program).arg(source).arg("-L").arg(kit::library_folder());
    cc.args(links).args(["-libverbs", "-Wl,--allow-shlib-undefined"]);
    kit::build(&mut cc).then_some(program)
}

/// A port that no other program has now.
fn free_port(address: Ipv4Addr) -> io::Result<u16> {
    Ok(std::net::TcpListener::bind((address, 0))?.local_addr()?.port())
}

/// Runs two processes of a program, each on its address, with settings. Returns what the client printed.
fn run_both(program: &Path, addresses: [Ipv4Addr; 2], rest: &[&str], settings: &[(&str, &str)]) -> String {
    let port = free_port(addresses[0]).unwrap().to_string();
    let start = |role: &str, own: Ipv4Addr| {
        let mut command = kit::on(own, program);
        command.args([role, &addresses[0].to_string(), &port]).args(rest);
        command.envs(settings.iter().copied());
        kit::start(&mut command)
    };
    let server = start("server", addresses[0]);
    let client = start("client", addresses[1]);
    let said = client.wait_with_output().unwrap();
    let of_server = server.wait_with_output().unwrap();
    kit::succeeded("server", &of_server);
    kit::succeeded("client", &said)
}

/// One address, whose processes meet in shared memory, and two, between which packets are UDP datagrams.
fn places() -> [[Ipv4Addr; 2]; 2] {
    let own = kit::address();
    [[own, own], [kit::address(), kit::address()]]
}

#[test]
fn a_benchmark_that_is_linked_with_libmrc_writes_between_two_processes() {
    let Some(program) = compile("mrc_bench", &["-l_mrc"]) else { return };
    for addresses in places() {
        for [bytes, count] in [["64", "1000"], ["65536", "500"], ["1000003", "20"]] {
            let said = run_both(&program, addresses, &[bytes, count], &[]);
            assert!(said.contains(&format!("{count} writes of {bytes} bytes")), "{said}");
        }
    }
}

#[test]
fn a_plug_in_opens_libmrc_and_writes_both_ways() {
    let Some(program) = compile("mrc_plugin", &["-ldl"]) else { return };
    for addresses in places() {
        run_both(&program, addresses, &["64"], &[]);
    }
}

#[test]
fn what_the_network_loses_arrives_all_the_same() {
    let Some(program) = compile("mrc_plugin", &["-ldl"]) else { return };
    for addresses in places() {
        run_both(&program, addresses, &["32"], &[("PUMICE_LOSS", "0.02")]);
    }
}

#[test]
fn a_controller_changes_profiles_and_hears_of_paths() {
    let Some(program) = compile("mrc_control", &["-l_mrc"]) else { return };
    let output = kit::on(kit::address(), program).arg(kit::address().to_string()).output();
    kit::succeeded("mrc_control", &output.expect("timeout(1) runs"));
}

#[test]
fn paths_are_divided_between_planes() {
    let Some(program) = compile("mrc_plugin", &["-ldl"]) else { return };
    let folder = kit::scratch("mrc-planes");
    let file = folder.join("%p.pcapng");
    let capture = file.to_str().expect("the folder's name is UTF-8");
    run_both(
        &program,
        [kit::address(), kit::address()],
        &["32"],
        &[("PUMICE_PLANES", "8"), ("PUMICE_CAPTURE", capture)],
    );
    let mut planes = [0_u32; 8];
    for entry in fs::read_dir(&folder).unwrap().flatten() {
        for (source_port, opcode) in packets(&fs::read(entry.path()).unwrap()) {
            if matches!(opcode, 0xc6..=0xcb) {
                planes[usize::from(source_port % 8)] += 1;
            }
        }
    }
    assert!(planes.iter().all(|count| *count > 20), "{planes:?}");
}

#[test]
fn a_plane_that_is_lost_costs_no_queue_pair() {
    let Some(program) = compile("mrc_plugin", &["-ldl"]) else { return };
    let rules = "drop plane=3/8\ndrop name=answers opcode=ack plane=3/8\ndrop name=lossy chance=5% plane=5/8";
    for addresses in places() {
        run_both(&program, addresses, &["32"], &[("PUMICE_PLANES", "8"), ("PUMICE_FAULT", rules)]);
    }
}

#[test]
fn packets_come_to_the_other_port_as_well() {
    let Some(program) = compile("mrc_plugin", &["-ldl"]) else { return };
    let folder = kit::scratch("mrc-port");
    let file = folder.join("%p.pcapng");
    let capture = file.to_str().expect("the folder's name is UTF-8");
    let settings = [("PUMICE_MRC_PORT", "4971"), ("PUMICE_CAPTURE", capture)];
    run_both(&program, [kit::address(), kit::address()], &["32"], &settings);
    let own = kit::address();
    run_both(&program, [own, own], &["32"], &[("PUMICE_MRC_PORT", "4971"), ("PUMICE_WIRE", "udp")]);
    for entry in fs::read_dir(&folder).unwrap().flatten() {
        let seen = fs::read(entry.path()).unwrap();
        let writes =
            packets_to(4971, &seen).iter().filter(|(_, opcode)| matches!(opcode, 0xc6..=0xcb)).count();
        assert!(writes >= 32, "{writes} WRITEs to 4971");
        assert!(packets(&seen).iter().all(|(_, opcode)| *opcode < 0xc0), "a packet of MRC to 4791");
    }
}

/// UDP source port and opcode of each packet to port 4791 in a capture.
fn packets(capture: &[u8]) -> Vec<(u16, u8)> {
    packets_to(4791, capture)
}

/// The same for any port: the two ports, the length, the checksum, and the first byte of the packet.
fn packets_to(udp_port: u16, capture: &[u8]) -> Vec<(u16, u8)> {
    let roce = udp_port.to_be_bytes();
    let is_udp = |window: &&[u8]| window[2..4] == roce && window[0] >= 0xc0;
    capture
        .windows(9)
        .filter(is_udp)
        .map(|window| (u16::from_be_bytes([window[0], window[1]]), window[8]))
        .collect()
}

#[test]
fn writes_of_rc_queue_pairs_go_by_mrc_until_they_post_something_else() {
    let Some(program) = compile("mrc_rc", &[]) else { return };
    for wire in ["auto", "udp"] {
        let file = kit::scratch("mrc-rc").join("packets.pcapng");
        let mut command = kit::on(kit::address(), &program);
        command.env("PUMICE_MRC", "1").env("PUMICE_CAPTURE", &file).env("PUMICE_WIRE", wire);
        let said = kit::succeeded(wire, &command.output().expect("timeout(1) runs"));
        assert_eq!(said.matches("which MRC does not have: it goes on as RC").count(), 2, "{said}");
        let seen = packets(&fs::read(&file).unwrap());
        let count = |opcodes: std::ops::RangeInclusive<u8>| {
            seen.iter().filter(|(_, opcode)| opcodes.contains(opcode)).count()
        };
        assert!(count(0xc6..=0xcb) >= 64, "{wire}: no WRITE of MRC in the capture");
        assert_eq!(count(0x06..=0x0b), 0, "{wire}: a WRITE of RC");
        assert!(count(0x00..=0x05) >= 2, "{wire}: no SEND of RC");
    }
    // Without the setting nothing changes.
    let file = kit::scratch("mrc-rc").join("packets.pcapng");
    let output =
        kit::on(kit::address(), &program).env("PUMICE_CAPTURE", &file).output().expect("timeout(1) runs");
    let said = kit::succeeded("rc", &output);
    assert!(!said.contains("MRC"), "{said}");
    assert!(packets(&fs::read(&file).unwrap()).iter().all(|(_, opcode)| *opcode < 0xc0));
}
