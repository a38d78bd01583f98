//! XRC domains of a file, shared between processes.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::fleet::{ChildProcess, Scene};

/// A process, and what it answers.
struct XrcPeer {
    process: ChildProcess,
    index: u32,
}

impl XrcPeer {
    fn start(scene: &Scene) -> XrcPeer {
        let mut process = ChildProcess::start(None, scene, "xrc");
        let index = process.read_reply("index").parse().unwrap();
        XrcPeer { process, index }
    }

    /// Says something and hears the answer.
    fn ask(&mut self, line: &str) -> String {
        self.begin(line);
        self.read_reply(line)
    }

    fn begin(&mut self, line: &str) {
        self.process.say(line);
    }

    fn read_reply(&mut self, line: &str) -> String {
        self.process.read_reply(line.split(' ').next().unwrap())
    }

    fn ok(&mut self, line: &str) {
        assert_eq!(self.ask(line), "ok", "{line}");
    }

    fn number(&mut self, line: &str) -> u32 {
        self.ask(line).parse().unwrap()
    }
}

/// Processes A and B of one domain, and a sender: A has made the target, B an SRQ.
struct Stage {
    scene: Scene,
    file: PathBuf,
    a: XrcPeer,
    b: XrcPeer,
    sender: XrcPeer,
    target: u32,
    initiator: u32,
    srq: u32,
}

impl Stage {
    fn new() -> Stage {
        let scene = Scene::new();
        let file = std::env::temp_dir().join(format!("{}-xrc", scene.folder().display()));
        fs::write(&file, "").unwrap();
        // The sender has the lowest process index: packets of no process come to it.
        let mut sender = XrcPeer::start(&scene);
        let (mut a, mut b) = (XrcPeer::start(&scene), XrcPeer::start(&scene));
        a.ok(&format!("domain {} cx", file.display()));
        assert_eq!(b.ask(&format!("domain {} cx", file.display())), "errno 22", "it exists");
        b.ok(&format!("domain {} -", file.display()));
        let target = a.number("target");
        let srq = b.number("srq");
        let initiator = sender.number("initiator");
        assert_eq!((target >> 16, srq >> 16), (a.index, b.index));
        let mut stage = Stage { scene, file, a, b, sender, target, initiator, srq };
        let (target, initiator, address) = (stage.target, stage.initiator, stage.address());
        stage.a.ok(&format!("ready {target} {initiator} {address}"));
        stage.sender.ok(&format!("connect {target} {address}"));
        stage
    }

    fn address(&self) -> IpAddr {
        self.scene.address()
    }

    /// Messages to B's SRQ, which all come there.
    fn exchange(&mut self, first: u64, count: u64) {
        let send = format!("send {} {first} {count}", self.srq);
        let receive = format!("receive {count} {}", self.target);
        self.sender.begin(&send);
        self.b.begin(&receive);
        assert_eq!(self.sender.read_reply(&send), "ok");
        assert_eq!(self.b.read_reply(&receive), "ok");
    }

    /// Batches that the sender and B have handed on.
    fn forwarded(&mut self) -> Vec<String> {
        let told = [&mut self.sender, &mut self.b].map(|peer| peer.ask("stats"));
        println!("{told:?}");
        told.iter().map(|told| told.split(' ').nth(1).unwrap().to_owned()).collect()
    }

    /// Files of domains in the folder.
    fn domain_files(&self) -> usize {
        let listing = fs::read_dir(self.scene.folder()).unwrap();
        listing.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("xrcd")).count()
    }

    fn domain_file(&self) -> PathBuf {
        let mut listing = fs::read_dir(self.scene.folder()).unwrap();
        let is_domain = |path: &PathBuf| path.to_string_lossy().contains("xrcd");
        listing.find_map(|entry| Some(entry.unwrap().path()).filter(is_domain)).unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

#[test]
fn statement_48_a_message_lands_with_the_owner_of_its_srq_and_the_target_outlives_its_creator() {
    let mut stage = Stage::new();
    stage.exchange(0, 200);
    let memory = stage.b.ask("memory");
    let rdma = format!("rdma {} {memory}", stage.srq);
    stage.sender.ok(&rdma);
    assert!(stage.a.ask("event").starts_with("CommEst"), "its creator's, though B executed the packet");
    assert_eq!(stage.b.ask("quiet"), "ok", "who has not opened the target hears no events");

    // A leaves in good order; B, which has it open, goes on with the same number and the same sequence.
    let target = stage.target;
    stage.b.ok(&format!("open {target} 5"));
    stage.a.process.quit();
    stage.exchange(200, 200);
    stage.sender.ok(&rdma);
    let state = stage.b.ask(&format!("query {target}"));
    assert!(state.starts_with("2 "), "{state}");

    // The number stays reserved while it is in use, whatever process comes.
    let late: Vec<u32> = (0..3).map(|_| XrcPeer::start(&stage.scene).index).collect();
    assert!(!late.contains(&(target >> 16)), "{late:?}");

    // The last one destroys it.
    stage.b.ok(&format!("close {target}"));
    assert_eq!(stage.b.ask(&format!("query {target}")), "errno 22");
    stage.b.process.quit();
    stage.sender.process.quit();
    assert_eq!(stage.domain_files(), 0, "nothing is left behind");
}

#[test]
fn a_killed_creator_leaves_its_target_to_those_who_have_it_open() {
    let mut stage = Stage::new();
    let target = stage.target;
    stage.b.ok(&format!("open {target} 5"));
    stage.exchange(0, 50);
    // In the middle of a stream.
    let (send, receive) = (format!("send {} 50 600", stage.srq), format!("receive 600 {target}"));
    stage.sender.begin(&send);
    stage.b.ok(&format!("receive 100 {target}"));
    stage.a.process.kill();
    stage.b.begin(&receive.replace("600", "500"));
    assert_eq!(stage.sender.read_reply(&send), "ok");
    assert_eq!(stage.b.read_reply(&receive), "ok");
    stage.exchange(650, 100);
    // Now that B has the packets without a detour.
    let before = stage.forwarded();
    stage.exchange(750, 100);
    assert_eq!(stage.forwarded(), before, "steered, not forwarded");
    stage.b.ok(&format!("fail {target}"));
    assert!(stage.b.ask("event").starts_with("CommEst"), "it was told when B did not yet know of it");
}

#[test]
fn a_killed_owner_of_an_srq_fails_the_target_and_nothing_is_stuck() {
    let mut stage = Stage::new();
    let target = stage.target;
    let mut c = XrcPeer::start(&stage.scene);
    c.ok(&format!("domain {} -", stage.file.display()));
    let other = c.number("srq");
    stage.exchange(0, 20);
    stage.b.process.kill();
    // A message to a process that lives is not concerned.
    stage.sender.ok(&format!("send {other} 0 20"));
    c.ok(&format!("receive 20 {target}"));
    let refused = stage.sender.ask(&format!("send {} 20 5", stage.srq));
    assert_eq!(refused, "REM_INV_RD_REQ_ERR after 0");
    for event in ["CommEst", "QpAccessErr", "QpLastWqeReached"] {
        assert!(stage.a.ask("event").starts_with(event), "{event}");
    }
    assert!(stage.a.ask(&format!("query {target}")).starts_with("6 "));
    stage.a.ok(&format!("destroy {target}"));
    assert_eq!(c.ask(&format!("query {target}")), "errno 22");
    c.process.quit();
    stage.a.process.quit();
    assert_eq!(stage.domain_files(), 0);
}

#[test]
fn killed_in_the_middle_of_a_stream_nothing_lands_where_it_should_not() {
    for round in 0..6 {
        let mut stage = Stage::new();
        let target = stage.target;
        let mut c = XrcPeer::start(&stage.scene);
        c.ok(&format!("domain {} -", stage.file.display()));
        let other = c.number("srq");
        c.ok(&format!("open {target} 9"));
        println!("{}", stage.a.ask("stats"));
        let send = format!("send {} 0 2000", stage.srq);
        stage.sender.begin(&send);
        stage.b.ok(&format!("receive {} {target}", 10 + 37 * round));
        stage.b.process.kill();
        let outcome = stage.sender.read_reply(&send);
        assert!(outcome.starts_with("REM_"), "{outcome}");
        // C got nothing but events, and can start over.
        assert!(c.ask("event").starts_with("CommEst") || round < 100);
        let initiator = stage.sender.number("initiator");
        let fresh = c.number("target");
        c.ok(&format!("ready {fresh} {initiator} {}", stage.address()));
        stage.sender.ok(&format!("connect {fresh} {}", stage.address()));
        stage.sender.ok(&format!("send {other} 0 30"));
        c.ok(&format!("receive 30 {fresh}"));
    }
}

#[test]
fn two_owners_of_srqs_take_turns_message_by_message() {
    let mut stage = Stage::new();
    let target = stage.target;
    // A has an SRQ as well; the target is its own.
    let own = stage.a.number("srq");
    let memory = [stage.a.ask("memory"), stage.b.ask("memory")];
    for round in 0..40 {
        for (srq, memory) in [(own, &memory[0]), (stage.srq, &memory[1])] {
            stage.sender.ok(&format!("send {srq} {} 3", round * 3));
            if round % 8 == 0 {
                stage.sender.ok(&format!("rdma {srq} {memory}"));
            }
        }
        stage.a.ok(&format!("receive 3 {target}"));
        stage.b.ok(&format!("receive 3 {target}"));
    }
    // Failing is told everywhere, once.
    stage.b.ok(&format!("open {target} 77"));
    stage.a.ok(&format!("fail {target}"));
    assert!(stage.b.ask("event").starts_with("QpLastWqeReached Qp"));
    assert!(stage.b.ask(&format!("query {target}")).starts_with("6 "));
    assert!(stage.a.ask("event").starts_with("CommEst"));
    assert!(stage.a.ask("event").starts_with("QpLastWqeReached"));
    assert_eq!(stage.a.ask("quiet"), "ok");
    assert_eq!(stage.b.ask("quiet"), "ok");
}

#[test]
fn what_is_in_a_domains_file_is_not_believed() {
    for damage in 0..5 {
        let mut stage = Stage::new();
        let target = stage.target;
        stage.b.ok(&format!("open {target} 5"));
        stage.exchange(0, 20);
        let file = stage.domain_file();
        let bytes = fs::read(&file).unwrap();
        match damage {
            0 => fs::write(&file, []).unwrap(),
            1 => fs::write(&file, vec![0xff; bytes.len()]).unwrap(),
            2 => fs::write(&file, bytes.iter().map(|byte| byte ^ 0x55).collect::<Vec<u8>>()).unwrap(),
            3 => fs::write(&file, &bytes[..40_000.min(bytes.len())]).unwrap(),
            _ => fs::write(&file, vec![0xa5; 100]).unwrap(),
        }
        // Whatever becomes of the target, no process fails.
        let outcome = stage.sender.ask(&format!("send {} 20 5", stage.srq));
        assert_ne!(outcome, "", "{damage}");
        for process in [&mut stage.a, &mut stage.b] {
            let answer = process.ask(&format!("query {target}"));
            assert!(answer == "errno 22" || answer.starts_with("6 ") || answer.starts_with("2 "), "{answer}");
        }
        stage.b.ok(&format!("close {target}"));
        stage.a.process.quit();
        stage.b.process.quit();
    }
}

#[test]
fn domains_of_different_files_do_not_meet() {
    let mut stage = Stage::new();
    let target = stage.target;
    let mut c = XrcPeer::start(&stage.scene);
    let another = std::env::temp_dir().join(format!("{}-xrc-other", stage.scene.folder().display()));
    fs::write(&another, "").unwrap();
    assert_eq!(c.ask(&format!("domain {} -", another.display())), "errno 11", "no process has made it");
    c.ok(&format!("domain {} c", another.display()));
    fs::remove_file(&another).unwrap();
    assert_eq!(c.ask(&format!("open {target} 1")), "errno 22");
    assert_eq!(c.ask(&format!("query {target}")), "errno 22");
    let foreign = c.number("srq");
    let refused = stage.sender.ask(&format!("send {foreign} 0 1"));
    assert_eq!(refused, "REM_INV_RD_REQ_ERR after 0");
    assert_eq!(c.ask("quiet"), "ok");
}

#[test]
fn a_process_on_another_address_is_on_another_device() {
    let mut stage = Stage::new();
    let IpAddr::V4(address) = stage.address() else { panic!("{}", stage.address()) };
    let [_, high, low, number] = address.octets();
    let elsewhere = stage.scene.with_address([127, high, low, number + 100].into());
    let mut c = XrcPeer::start(&elsewhere);
    c.ok(&format!("domain {} cx", stage.file.display()));
    assert_eq!(c.ask(&format!("open {} 1", stage.target)), "errno 22");
    let foreign = c.number("srq");
    let refused = stage.sender.ask(&format!("send {foreign} 0 1"));
    assert_eq!(refused, "REM_INV_RD_REQ_ERR after 0", "at once, not after all retries");
}
