//! `pumice fault add 'event …'`: what happens to ports and devices while programs run, and what verbs, sysfs
//! and netlink tell of it, in the program itself and in others.

use std::process::Command;
use std::time::{Duration, Instant};

#[path = "fault/scratch.rs"]
mod scratch;

use scratch::{LineDrivenProgram, Scratch, address, compile};

/// How long the tests wait for what has to come.
const TIMEOUT: Duration = Duration::from_secs(60);
const UP: &str = "4 5 1 1, 4: ACTIVE, 5: LinkUp, 2.5 Gb/sec (1X SDR)\n";

impl Scratch {
    fn happens(&self, rule: &str) {
        let (code, out, stderr_text) = self.fault(&["add", &format!("event {rule} after=\"time 0s\"")]);
        assert_eq!(code, Some(0), "{rule}: {out}{stderr_text}");
    }

    /// What another program prints that has no device open.
    fn other(&self, addresses: &str, options: &[&str], words: &[&str]) -> String {
        let mut command = self.pumice(&["run", "--addr", addresses]);
        let output = command.args(options).arg("--").args(words).output().expect("it can be run");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl LineDrivenProgram {
    fn query(&mut self, question: &str) -> String {
        self.send_line(question);
        self.read_line()
    }

    /// Asks until this is the answer: no event tells of it.
    fn query_until(&mut self, question: &str, expected: &str) {
        let end = Instant::now() + TIMEOUT;
        loop {
            let answer = self.query(question);
            if answer == expected {
                return;
            }
            assert!(Instant::now() < end, "{question}: {answer:?} and not {expected:?}");
        }
    }
}

fn file(device: &str, name: &str) -> String {
    format!("/sys/class/infiniband/{device}/ports/1/{name}")
}

#[test]
fn a_port_goes_down_and_up_and_sysfs_follows() {
    let scratch = Scratch::new("live-port");
    let Some(program) = compile(&scratch, "watch") else { return };
    let mut watch = LineDrivenProgram::alone(&scratch, &program, 31, &[]);
    let own = address(31);
    let state =
        || scratch.other(&own, &[], &["cat", &file("pumice0", "state"), &file("pumice0", "phys_state")]);
    assert_eq!(watch.query("port 0"), UP);
    assert_eq!(state(), "4: ACTIVE\n5: LinkUp\n");

    scratch.happens("kind=port-down");
    assert_eq!(watch.query("event 0"), "port error\n");
    // The file says so when the program has the event.
    assert_eq!(watch.query("port 0"), "1 3 1 1, 1: DOWN, 3: Disabled, 2.5 Gb/sec (1X SDR)\n");
    assert_eq!(state(), "1: DOWN\n3: Disabled\n");
    if Command::new("rdma").arg("-V").output().is_ok() {
        let link = scratch.other(&own, &[], &["rdma", "link"]);
        assert!(link.contains("link pumice0/1 state DOWN physical_state DISABLED"), "{link}");
    }
    scratch.happens("kind=port-up");
    assert_eq!(watch.query("event 0"), "port active\n");
    assert_eq!(watch.query("port 0"), UP);
    assert_eq!(state(), "4: ACTIVE\n5: LinkUp\n");

    scratch.happens("kind=cable-pull");
    watch.query_until("port 0", "4 2 1 1, 4: ACTIVE, 2: Polling, 2.5 Gb/sec (1X SDR)\n");
    assert_eq!(state(), "4: ACTIVE\n2: Polling\n");
    scratch.happens("kind=port-up");
    watch.query_until("port 0", UP);

    scratch.happens("kind=speed-change speed=edr width=2");
    assert_eq!(
        (watch.query("event 0"), watch.query("event 0")),
        ("port error\n".into(), "port active\n".into())
    );
    assert_eq!(watch.query("port 0"), "4 5 32 16, 4: ACTIVE, 5: LinkUp, 50 Gb/sec (2X EDR)\n");
    scratch.happens("kind=speed-change width=4");
    assert_eq!(
        (watch.query("event 0"), watch.query("event 0")),
        ("port error\n".into(), "port active\n".into())
    );
    assert_eq!(watch.query("port 0"), "4 5 32 2, 4: ACTIVE, 5: LinkUp, 100 Gb/sec (4X EDR)\n");
    assert_eq!(scratch.other(&own, &[], &["cat", &file("pumice0", "rate")]), "100 Gb/sec (4X EDR)\n");

    let shown = |name: &str| scratch.other(&own, &[], &["cat", &file("pumice0", name)]);
    let (gid, empty) = (shown("gids/0"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
    assert_eq!((shown("gids/5").as_str(), shown("gid_attrs/types/5").as_str()), (empty, ""));
    scratch.happens("kind=gid-move to=5");
    assert_eq!(watch.query("event 0"), "GID table change\n");
    assert_eq!((shown("gids/5"), shown("gids/0").as_str()), (gid.clone(), empty));
    assert_eq!(shown("gid_attrs/types/5"), "RoCE v2\n");
    assert_eq!(shown("gid_attrs/ndevs/5"), "lo\n");
    // As Linux answers for an index without an address.
    let script = format!("cat {} 2>&1", file("pumice0", "gid_attrs/types/0"));
    let refused = scratch.other(&own, &[], &["sh", "-c", &script]);
    assert!(refused.ends_with("Invalid argument\n"), "{refused}");
    scratch.happens("kind=gid-move gid=5 to=0");
    assert_eq!(watch.query("event 0"), "GID table change\n");
    assert_eq!((shown("gids/0"), shown("gids/5").as_str()), (gid.clone(), empty));
    scratch.happens("kind=gid-move to=3");
    assert_eq!(watch.query("event 0"), "GID table change\n");
    assert_eq!(shown("gids/3"), gid);
    scratch.happens("kind=port-down time=50ms");
    assert_eq!(
        (watch.query("event 0"), watch.query("event 0")),
        ("port error\n".into(), "port active\n".into())
    );

    // What happened to a process ends with it, also where it is killed.
    scratch.happens("kind=port-down");
    assert_eq!(watch.query("event 0"), "port error\n");
    assert_eq!(state(), "1: DOWN\n3: Disabled\n");
    watch.child.kill().expect("a child of ours");
    watch.child.wait().expect("a child of ours");
    assert_eq!(state(), "4: ACTIVE\n5: LinkUp\n");
    assert_eq!(shown("gids/0"), gid);
}

#[test]
fn of_two_processes_each_sees_its_own_port_and_others_the_worse() {
    let scratch = Scratch::new("live-two");
    let Some(program) = compile(&scratch, "watch") else { return };
    let own = address(33);
    let start = |tag: &str| {
        let mut watch = LineDrivenProgram::on(&scratch, &program, &own, &["run"], &["--tag", tag]);
        watch.expect_line("ready\n");
        watch
    };
    let (mut one, mut other) = (start("one"), start("other"));
    let (code, _, stderr_text) =
        scratch.fault(&["add", "event kind=port-down after=\"time 0s\"", "--tag", "one"]);
    assert_eq!(code, Some(0), "{stderr_text}");
    assert_eq!(one.query("event 0"), "port error\n");
    assert!(one.query("port 0").contains("1: DOWN"));
    assert_eq!(other.query("port 0"), UP);
    let state = || scratch.other(&own, &[], &["cat", &file("pumice0", "state")]);
    assert_eq!(state(), "1: DOWN\n");
    one.ends();
    assert_eq!(state(), "4: ACTIVE\n");
    other.ends();
}

#[test]
fn a_device_is_pulled_out_and_nothing_shows_it() {
    let scratch = Scratch::new("live-unplug");
    let Some(program) = compile(&scratch, "watch") else { return };
    let addresses = format!("{},{}", address(35), address(36));
    let options = ["--devices", "2"];
    let other = |words: &[&str]| scratch.other(&addresses, &options, words);
    let mut watch = LineDrivenProgram::on(&scratch, &program, &addresses, &["run"], &options);
    watch.expect_line("ready\n");
    assert_eq!(watch.query("list"), "verbs pumice0 pumice1, sysfs pumice0 pumice1\n");
    scratch.happens("kind=unplug device=pumice1");
    assert_eq!(watch.query("event 1"), "local catastrophic error\n");
    assert_eq!(watch.query("list"), "verbs pumice0, sysfs pumice0\n");
    assert_eq!(watch.query("port 1"), "refused, none, none, none\n");
    assert_eq!(watch.query("port 0"), UP);
    assert_eq!(
        other(&["ls", "/sys/class/infiniband", "/dev/infiniband", "/sys/class/infiniband_verbs"]),
        "/dev/infiniband:\nrdma_cm\nuverbs0\n\n/sys/class/infiniband:\npumice0\n\n\
         /sys/class/infiniband_verbs:\nabi_version\nuverbs0\n"
    );
    assert_eq!(other(&["cat", &file("pumice0", "state"), &file("pumice1", "state")]), "4: ACTIVE\n");
    let script = "cd /sys/class/infiniband && echo * && cat */node_type && pwd && \
                  readlink -f /sys/class/infiniband/pumice0 && ls /sys/class/infiniband/*/ports/1/state";
    assert_eq!(
        other(&["sh", "-c", script]),
        "pumice0\n1: CA\n/sys/class/infiniband\n/sys/devices/virtual/infiniband/pumice0\n\
         /sys/class/infiniband/pumice0/ports/1/state\n"
    );
    if Command::new("rdma").arg("-V").output().is_ok() {
        let links = other(&["rdma", "link"]);
        assert!(links.contains("pumice0/1 state ACTIVE") && !links.contains("pumice1"), "{links}");
        assert_eq!(other(&["rdma", "dev", "show", "pumice1"]), "");
    }
    watch.ends();
    assert_eq!(other(&["ls", "/sys/class/infiniband"]), "pumice0\npumice1\n");

    // After a time it is back.
    let mut watch = LineDrivenProgram::on(&scratch, &program, &addresses, &["run"], &options);
    watch.expect_line("ready\n");
    scratch.happens("kind=unplug device=pumice0 time=200ms");
    assert_eq!(watch.query("event 0"), "local catastrophic error\n");
    watch.query_until("list", "verbs pumice0 pumice1, sysfs pumice0 pumice1\n");
    watch.ends();
}

/// Waits until the rule of this name has applied.
fn has_applied(scratch: &Scratch, name: &str) {
    let end = Instant::now() + TIMEOUT;
    while !scratch.rules(&[]).iter().any(|rule| rule["name"] == name && rule["applied"] == 1) {
        assert!(Instant::now() < end, "{name} does not apply");
    }
}

#[test]
fn a_link_becomes_slow_while_a_program_runs_on_both_media() {
    let scratch = Scratch::new("live-link");
    let Some(program) = compile(&scratch, "paced") else { return };
    for (end, wire) in [(37, "udp"), (38, "auto")] {
        let mut paced = LineDrivenProgram::alone(&scratch, &program, end, &["--wire", wire]);
        paced.sends(3);
        scratch.happens("name=far kind=link delay=40ms");
        has_applied(&scratch, "far");
        for _ in 0..2 {
            let begun = Instant::now();
            paced.sends(1);
            // Out and in, the message and its acknowledgement.
            let took = begun.elapsed();
            assert!(took >= Duration::from_millis(160), "{wire}: {took:?}");
        }
        scratch.happens("name=slow kind=link delay=0ns rate=1Mbit queue=64KiB");
        has_applied(&scratch, "slow");
        paced.sends(20);
        scratch.happens("name=again kind=link-restore");
        has_applied(&scratch, "again");
        paced.sends(20);
        paced.ends();
    }
}
