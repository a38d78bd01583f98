//! The parent's side: starting processes, telling them what to do, hearing what they did.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::iter::Sum;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use pumice_device::port::UdpConfig;
use pumice_device::sharing::{PortProcess, SharedPortConfig, inspect, port_processes};

use crate::child::{self, is_udp_only};

/// How long an answer may take before the test has failed. Nothing waits for this in a run that passes.
const PATIENCE: Duration = Duration::from_secs(300);

/// A loopback address and a registry folder that no other test uses.
pub(crate) struct Scene {
    folder: PathBuf,
    address: IpAddr,
    /// Its processes use UDP, whatever PUMICE_WIRE says.
    on_udp: bool,
    owned: bool,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let folder = std::env::temp_dir().join(format!("pumice-sharing-{pid}-{number}"));
        let _ = fs::remove_dir_all(&folder);
        let [high, low] = [201 + (pid % 50) as u8, (pid / 50 % 250) as u8];
        let address = IpAddr::V4(Ipv4Addr::new(127, high, low, number as u8 + 1));
        Scene { folder, address, on_udp: false, owned: true }
    }

    /// A scene of what only UDP has.
    pub(crate) fn on_udp() -> Scene {
        let mut scene = Scene::new();
        scene.on_udp = true;
        scene
    }

    /// The scene of the process that started this one.
    pub(crate) fn of_child() -> Scene {
        let config = child::config();
        let folder = config.folder.expect("a process of a scene has its folder");
        Scene { folder, address: config.udp.address, on_udp: config.udp_only, owned: false }
    }

    pub(crate) fn with_folder(&self, folder: &str) -> Scene {
        Scene { folder: folder.into(), address: self.address, on_udp: self.on_udp, owned: false }
    }

    pub(crate) fn with_address(&self, address: IpAddr) -> Scene {
        Scene { folder: self.folder.clone(), address, on_udp: self.on_udp, owned: false }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    fn is_on_udp(&self) -> bool {
        self.on_udp || is_udp_only()
    }

    pub(crate) fn config(&self, address: IpAddr) -> SharedPortConfig {
        SharedPortConfig {
            folder: Some(self.folder.clone()),
            udp_only: self.is_on_udp(),
            ..SharedPortConfig::new(UdpConfig::new(address))
        }
    }

    /// The registry file of this network namespace.
    pub(crate) fn registry(&self) -> PathBuf {
        let files = fs::read_dir(&self.folder).unwrap().map(|file| file.unwrap().path());
        // What lies beside it has its name and a hyphen more.
        let is_registry = |path: &PathBuf| {
            path.to_string_lossy().split("udp").last().is_some_and(|name| name.matches('-').count() == 1)
        };
        files.into_iter().find(is_registry).expect("there is a registry")
    }

    pub(crate) fn members(&self) -> Vec<PortProcess> {
        port_processes(4791, Some(&self.folder)).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.owned {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// A child process that answers lines with lines that begin with `@`.
pub(crate) struct ChildProcess {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl ChildProcess {
    /// Starts this program in a role. `prefix` is what runs it, such as `setpriv …`, or empty.
    pub(crate) fn start(prefix: Option<Command>, scene: &Scene, role: &str) -> ChildProcess {
        let own = std::env::current_exe().unwrap();
        match prefix {
            Some(mut prefix) => {
                prefix.arg(own);
                ChildProcess::run(prefix, scene, role)
            }
            None => ChildProcess::run(Command::new(own), scene, role),
        }
    }

    /// Starts this program, which `command` runs, in a role.
    pub(crate) fn run(mut command: Command, scene: &Scene, role: &str) -> ChildProcess {
        if scene.on_udp {
            command.env("PUMICE_WIRE", "udp");
        }
        let mut child = command
            .args(["process", "--exact", "--nocapture", "--test-threads=1"])
            .env("PUMICE_SHARING_ROLE", role)
            .env("PUMICE_SHARING_FOLDER", scene.folder())
            .env("PUMICE_SHARING_ADDRESS", scene.address().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The test harness writes on the same line now and then.
                if let Some((_, answer)) = line.split_once('@')
                    && sender.send(answer.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        ChildProcess { child, input, answers }
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the process lives");
    }

    /// The rest of the next answer, which has to begin with `word`.
    pub(crate) fn read_reply(&mut self, word: &str) -> String {
        let answer = self.answer().unwrap_or_else(|| panic!("{} ended before \"{word}\"", self.child.id()));
        let Some(rest) = answer.strip_prefix(word) else { panic!("\"{answer}\" instead of \"{word}\"") };
        rest.trim().to_owned()
    }

    /// The next answer; nothing if the process has ended.
    pub(crate) fn answer(&mut self) -> Option<String> {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(answer) => Some(answer),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no answer from process {}", self.child.id()),
        }
    }

    /// Kills it, which it cannot notice.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it, and waits until it has stopped.
    pub(crate) fn stop(&mut self) {
        self.signal(libc::SIGSTOP, libc::WSTOPPED);
    }

    /// Lets it run again.
    pub(crate) fn resume(&mut self) {
        self.signal(libc::SIGCONT, libc::WCONTINUED);
    }

    fn signal(&mut self, signal: i32, awaited: i32) {
        let pid = self.child.id();
        // SAFETY: the child has not been waited for, so the number is its own.
        assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
        // SAFETY: all-zero is a valid siginfo_t.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the call fills in the structure, which lives through it. It does not reap the child.
        assert_eq!(unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, awaited) }, 0);
    }

    pub(crate) fn quit(&mut self) {
        self.say("quit");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stats {
    pub(crate) forwarded: u64,
    pub(crate) taken_over: u64,
    pub(crate) rejected: u64,
    pub(crate) mended: u64,
    pub(crate) unknown_qpn: u64,
}

impl Sum for Stats {
    fn sum<I: Iterator<Item = Stats>>(all: I) -> Stats {
        all.fold(Stats::default(), |sum, one| Stats {
            forwarded: sum.forwarded + one.forwarded,
            taken_over: sum.taken_over + one.taken_over,
            rejected: sum.rejected + one.rejected,
            mended: sum.mended + one.mended,
            unknown_qpn: sum.unknown_qpn + one.unknown_qpn,
        })
    }
}

struct Peer {
    process: ChildProcess,
    address: IpAddr,
    index: u8,
    qpns: Vec<u32>,
    alive: bool,
}

/// Processes with an HCA each, every one connected to every one. An even number: the queue pair that
/// would lead to the process itself leads to its neighbour.
#[derive(Default)]
pub(crate) struct Fleet {
    peers: Vec<Peer>,
    folder: PathBuf,
    on_udp: bool,
}

impl Fleet {
    pub(crate) fn start(scene: &Scene, count: usize) -> Fleet {
        let folder = scene.folder().to_owned();
        let mut fleet = Fleet { peers: Vec::new(), folder, on_udp: scene.is_on_udp() };
        let started: Vec<ChildProcess> =
            (0..count).map(|_| ChildProcess::start(None, scene, "hca")).collect();
        started.into_iter().for_each(|process| fleet.admit(process, scene.address()));
        fleet
    }

    /// More processes like the first.
    pub(crate) fn add(&mut self, count: usize) {
        let address = self.peers[0].address;
        let scene = Scene { folder: self.folder.clone(), address, on_udp: self.on_udp, owned: false };
        for _ in 0..count {
            self.admit(ChildProcess::start(None, &scene, "hca"), address);
        }
    }

    pub(crate) fn push(&mut self, prefix: Command, scene: &Scene) {
        self.folder = scene.folder().to_owned();
        self.on_udp = scene.is_on_udp();
        self.admit(ChildProcess::start(Some(prefix), scene, "hca"), scene.address());
    }

    fn admit(&mut self, mut process: ChildProcess, address: IpAddr) {
        let index = process.read_reply("index").parse().unwrap();
        self.peers.push(Peer { process, address, index, qpns: Vec::new(), alive: true });
    }

    pub(crate) fn indices(&self) -> Vec<u8> {
        self.peers.iter().map(|peer| peer.index).collect()
    }

    pub(crate) fn members(&self) -> Vec<PortProcess> {
        port_processes(4791, Some(&self.folder)).unwrap()
    }

    /// New queue pairs for all processes, and connections between all of them.
    pub(crate) fn connect(&mut self) {
        let count = self.peers.len();
        for peer in &mut self.peers {
            peer.process.say(&format!("create {count}"));
        }
        for peer in &mut self.peers {
            peer.qpns = peer.process.read_reply("qpns").split(' ').map(|qpn| qpn.parse().unwrap()).collect();
            assert!(peer.qpns.iter().all(|qpn| qpn >> 16 == u32::from(peer.index)));
        }
        for own in 0..count {
            let to: Vec<String> = (0..count)
                .map(|index| {
                    let (other, back) = if index == own { (own ^ 1, own ^ 1) } else { (index, own) };
                    format!("{}@{}", self.peers[other].qpns[back], self.peers[other].address)
                })
                .collect();
            self.peers[own].process.say(&format!("connect {}", to.join(" ")));
        }
        self.hear_all("connected");
    }

    /// What carries packets between those that live, in words.
    pub(crate) fn media(&self) -> Vec<String> {
        let processes = inspect(4791, Some(&self.folder), PATIENCE).unwrap();
        let lives = |qpn: u32| self.peers.iter().any(|peer| peer.alive && qpn >> 16 == u32::from(peer.index));
        let qps = processes.into_iter().filter_map(|process| process.objects).flat_map(|objects| objects.qps);
        qps.filter(|qp| qp.peer.as_ref().is_some_and(|peer| lives(peer.qpn)))
            .filter_map(|qp| qp.medium)
            .collect()
    }

    /// Exchanges messages until all that live have rings to each other, unless they use UDP only.
    pub(crate) fn meet(&mut self) {
        let (begun, on_udp) = (Instant::now(), self.on_udp);
        let is_met = |media: &[String]| {
            let rings = media.iter().filter(|medium| *medium == "shared memory").count();
            rings == if on_udp { 0 } else { media.len() } && !media.is_empty()
        };
        while !is_met(&self.media()) {
            assert!(!on_udp && begun.elapsed() < PATIENCE, "{:?}", self.media());
            self.run(4);
        }
    }

    /// Each queue pair sends and receives `count` messages; all are verified.
    pub(crate) fn run(&mut self, count: usize) {
        self.begin(count);
        self.finish();
    }

    pub(crate) fn begin(&mut self, count: usize) {
        for peer in self.peers.iter_mut().filter(|peer| peer.alive) {
            peer.process.say(&format!("run {count}"));
        }
    }

    /// Waits until all processes are in the middle of a run.
    pub(crate) fn wait_for_progress(&mut self) {
        self.hear_all("progress");
    }

    pub(crate) fn finish(&mut self) {
        for peer in self.peers.iter_mut().filter(|peer| peer.alive) {
            loop {
                let answer = peer.process.answer().expect("the process lives");
                match answer.trim() {
                    "progress" => {}
                    "ran" => break,
                    other => panic!("process index {}: {other}", peer.index),
                }
            }
        }
    }

    /// Kills a process and tells the others which of their connections are gone.
    pub(crate) fn kill(&mut self, victim: usize) {
        self.peers[victim].process.kill();
        self.peers[victim].alive = false;
        for (index, peer) in self.peers.iter_mut().enumerate().filter(|(_, peer)| peer.alive) {
            peer.process.say(&format!("forget {victim}"));
            if index ^ 1 == victim {
                peer.process.say(&format!("forget {index}"));
            }
        }
    }

    /// Makes the kernel send everything to one process's socket, whichever process a packet is for.
    pub(crate) fn missteer(&mut self, by: usize) {
        self.peers[by].process.say("missteer");
        self.peers[by].process.read_reply("missteered");
    }

    pub(crate) fn stats(&mut self) -> Vec<Stats> {
        let alive = self.peers.iter_mut().filter(|peer| peer.alive);
        alive
            .map(|peer| {
                peer.process.say("stats");
                let answer = peer.process.read_reply("stats");
                let numbers: Vec<u64> = answer.split(' ').map(|number| number.parse().unwrap()).collect();
                let [forwarded, taken_over, rejected, mended, unknown_qpn] = numbers[..] else {
                    panic!("{answer}")
                };
                Stats { forwarded, taken_over, rejected, mended, unknown_qpn }
            })
            .collect()
    }

    pub(crate) fn quit(&mut self) {
        for peer in self.peers.iter_mut().filter(|peer| peer.alive) {
            peer.alive = false;
            peer.process.quit();
        }
    }

    fn hear_all(&mut self, word: &str) {
        for peer in self.peers.iter_mut().filter(|peer| peer.alive) {
            peer.process.read_reply(word);
        }
    }
}

/// Two network namespaces with a cable between them.
pub(crate) struct TwoHosts {
    names: [String; 2],
}

impl TwoHosts {
    /// Nothing if they cannot be made.
    pub(crate) fn new() -> Option<TwoHosts> {
        let pid = std::process::id();
        let hosts = TwoHosts { names: ["a", "b"].map(|side| format!("pumice-{side}-{pid}")) };
        let [a, b] = &hosts.names;
        let (cable_a, cable_b) = (format!("pmA{pid}"), format!("pmB{pid}"));
        let mut done = ip(&["netns", "add", a])
            && ip(&["netns", "add", b])
            && ip(&["-n", a, "link", "add", &cable_a, "type", "veth", "peer", "name", &cable_b, "netns", b]);
        for (name, cable, (_, address)) in [(a, &cable_a, hosts.side(0)), (b, &cable_b, hosts.side(1))] {
            done = done
                && ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", cable])
                && ip(&["-n", name, "link", "set", "lo", "up"])
                && ip(&["-n", name, "link", "set", cable, "up"]);
        }
        done.then_some(hosts)
    }

    /// Namespace and address of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, IpAddr)> {
        (0..2).map(|index| self.side(index))
    }

    fn side(&self, index: u8) -> (&str, IpAddr) {
        (&self.names[usize::from(index)], IpAddr::from([10, 99, 0, index + 1]))
    }
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&["netns", "delete", name]);
        }
    }
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
