//! Several users on one machine: another user gets nothing, takes no name, and cannot keep this user's
//! programs from working.
//!
//! These tests need root, which can become other users; without root they run in a user namespace with
//! subordinate users, and where that is not possible either they say so and skip. Each has a network, a /tmp
//! and a /dev/shm of its own.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::fleet::{ChildProcess, Scene};

/// A user who is not ours. Not "nobody", whose number also stands for users without one.
const STRANGER: u32 = 61_002;
/// Says that a test runs in a user namespace already.
const NESTED: &str = "PUMICE_SHARING_NESTED";

/// Says why a test cannot judge, where it is seen: what a passing test prints is not.
fn skip(reason: &str) {
    let _ = writeln!(std::io::stderr(), "**** SKIPPED: {reason}");
}

/// Whether the test `name` is to go on in this process. If not, it has run in a user namespace, or is
/// skipped.
fn can_change_user(name: &str) -> bool {
    // SAFETY: no memory is involved.
    if unsafe { libc::geteuid() } == 0 {
        let status = Command::new("nsenter").args(["-S", &STRANGER.to_string(), "true"]).status();
        let able = status.is_ok_and(|status| status.success());
        if !able {
            skip(&format!("{name}: root may not become user {STRANGER} here, or there is no nsenter"));
        }
        return able;
    }
    let nested = ["--user", "--map-root-user", "--map-auto", "--mount", "--"];
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(nested);
        command
    };
    if std::env::var_os(NESTED).is_some()
        || !unshare().arg("true").output().is_ok_and(|out| out.status.success())
    {
        skip(&format!(
            "{name}: only root, or `unshare --map-auto` with PUMICE_ISOLATED=no, can be two users"
        ));
        return false;
    }
    let own = std::env::current_exe().unwrap();
    let status = unshare().arg(own).args([name, "--exact", "--nocapture"]).env(NESTED, "1").status().unwrap();
    assert!(status.success(), "in a user namespace: {status}");
    false
}

/// The number of a user outside of the user namespace that this process is in, if it is in one: the names of
/// folders have that.
fn outer(uid: u32) -> u32 {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    let ranges = map.lines().map(|line| {
        let numbers: Vec<u32> = line.split_ascii_whitespace().map(|number| number.parse().unwrap()).collect();
        (numbers[0], numbers[1], numbers[2])
    });
    let mut outer = ranges.filter(|(inside, _, count)| uid >= *inside && uid - inside < *count);
    outer.next().map(|(inside, outside, _)| uid - inside + outside).expect("a number outside")
}

/// A network, a /tmp and a /dev/shm that only processes started here see, with a copy of this program in
/// /tmp.
struct Room {
    keeper: Child,
    _input: ChildStdin,
}

impl Room {
    fn new() -> Room {
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount"]);
        Room::made_by(command)
    }

    /// Another one with the same network.
    fn beside(other: &Room) -> Room {
        let mut command = Command::new("nsenter");
        command.args(["-t", &other.keeper.id().to_string(), "--net", "unshare", "--mount"]);
        Room::made_by(command)
    }

    fn made_by(mut command: Command) -> Room {
        let script = "ip link set lo up && mount --make-rprivate / && \
                      mount -t tmpfs -o mode=1777 none /dev/shm && \
                      mount -t tmpfs -o mode=1777 none /tmp && exec cat";
        let mut keeper =
            command.args(["sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = keeper.stdin.take().unwrap();
        // It answers when everything is mounted.
        std::io::Write::write_all(&mut input, b"x").unwrap();
        let mut answer = [0];
        std::io::Read::read_exact(keeper.stdout.as_mut().unwrap(), &mut answer)
            .expect("namespaces can be made");
        let room = Room { keeper, _input: input };
        // install(1) copies the program. If this process wrote the copy, the children that other tests start
        // meanwhile would inherit the open file, and the kernel would refuse to run it.
        let own = std::env::current_exe().unwrap();
        let copied =
            Command::new("install").args(["-m", "755"]).arg(own).arg(room.path("/tmp/program")).status();
        assert!(copied.unwrap().success());
        room
    }

    /// Where a file of the room is for processes outside.
    fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.keeper.id()))
    }

    /// What runs something in the room.
    fn command(&self, uid: u32) -> Command {
        let mut command = Command::new("nsenter");
        let uid = uid.to_string();
        command.args(["-t", &self.keeper.id().to_string(), "--net", "--mount", "-S", &uid, "-G", &uid, "--"]);
        command.env_remove("XDG_RUNTIME_DIR").env("HOME", "/nonexistent").current_dir("/");
        command
    }

    /// Runs a shell's line.
    fn shell(&self, uid: u32, line: &str) {
        let status = self.command(uid).args(["sh", "-c", line]).status().unwrap();
        assert!(status.success(), "{line}: {status}");
    }

    /// A process that has the port. `within` is what runs it in the room.
    fn bare(&self, uid: u32, within: &[&str], address: &Scene) -> ChildProcess {
        let mut command = self.command(uid);
        command.args(within);
        self.process(command, "bare", address)
    }

    fn process(&self, mut command: Command, role: &str, address: &Scene) -> ChildProcess {
        command.arg("/tmp/program");
        ChildProcess::run(command, &address.with_folder(""), role)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// What a process answers to a question.
fn ask(process: &mut ChildProcess, question: &str) -> String {
    process.say(question);
    process.read_reply("done")
}

fn registry_of(process: &mut ChildProcess) -> PathBuf {
    ask(process, "registry").into()
}

fn folder_of(registry: &Path) -> String {
    registry.parent().unwrap().display().to_string()
}

/// What another user tries against the processes that share a port: names in the abstract namespace (as they
/// were before), and everything in their folder.
pub(crate) fn run_stranger() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    crate::child::say("here");
    let mut bound: Vec<UnixDatagram> = Vec::new();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            // Takes the abstract names of process indices 1 to 254 that have the form of one that it sees.
            "take-names" => {
                let names = fs::read_to_string("/proc/net/unix").unwrap();
                let stems = names.lines().filter_map(|line| {
                    let name = line.rsplit(' ').next()?.strip_prefix('@')?;
                    name.starts_with("pumice")
                        .then(|| name.rsplit_once('-').map(|(stem, _)| stem.to_owned()))?
                });
                for stem in stems.collect::<std::collections::BTreeSet<_>>() {
                    for index in 1..=254 {
                        let address = SocketAddr::from_abstract_name(format!("{stem}-{index}")).unwrap();
                        bound.extend(UnixDatagram::bind_addr(&address).ok());
                    }
                }
                crate::child::say(&format!("done {}", bound.len()));
            }
            // What has come to these names.
            "stolen" => {
                let mut stolen = 0;
                for socket in &bound {
                    socket.set_nonblocking(true).unwrap();
                    while socket.recv(&mut [0; 65_536]).is_ok() {
                        stolen += 1;
                    }
                }
                crate::child::say(&format!("done {stolen}"));
            }
            // Tries to see, to send to, and to make names in a folder: what did it manage?
            "enter" => {
                let folder = Path::new(rest);
                let mut managed = Vec::new();
                if fs::read_dir(folder).is_ok() {
                    managed.push("list".to_owned());
                }
                let net = fs::metadata("/proc/self/ns/net").unwrap();
                let stem = format!("udp4791-net{}", std::os::unix::fs::MetadataExt::ino(&net));
                let socket = UnixDatagram::unbound().unwrap();
                for index in 1..=254 {
                    if socket.send_to(b"junk", folder.join(format!("{stem}-slot{index}"))).is_ok() {
                        managed.push(format!("send to {index}"));
                    }
                }
                if UnixDatagram::bind(folder.join(format!("{stem}-slot200"))).is_ok() {
                    managed.push("bind".to_owned());
                }
                for file in [stem.clone(), format!("{stem}-backlog"), format!("{stem}-services")] {
                    if fs::File::open(folder.join(&file)).is_ok() {
                        managed.push(format!("open {file}"));
                    }
                }
                if fs::rename(folder, folder.with_extension("away")).is_ok() || fs::remove_dir(folder).is_ok()
                {
                    managed.push("remove".to_owned());
                }
                crate::child::say(&format!("done {}", managed.join(", ")));
            }
            "quit" => return,
            other => panic!("{other}?"),
        }
    }
}

#[test]
fn another_user_gets_nothing_and_takes_no_name() {
    if !can_change_user("users::another_user_gets_nothing_and_takes_no_name") {
        return;
    }
    let (room, scene) = (Room::new(), Scene::new());
    let start = || {
        let mut process = room.bare(0, &[], &scene);
        let index: u8 = process.read_reply("index").parse().unwrap();
        (process, index)
    };
    let ((mut a, _), (mut b, index_of_b)) = (start(), start());
    let mut stranger = room.process(room.command(STRANGER), "stranger", &scene);
    stranger.read_reply("here");
    let registry = registry_of(&mut a);
    assert_eq!(registry_of(&mut b), registry);
    let enter = format!("enter {}", folder_of(&registry));
    assert_eq!(ask(&mut stranger, &enter), "", "while both live");
    assert_eq!(ask(&mut a, &format!("forward {index_of_b}")), "true");
    assert_eq!(ask(&mut b, "receive"), index_of_b.to_string());

    // The process dies; whatever the stranger does, what is for it goes nowhere.
    b.kill();
    let taken = ask(&mut stranger, "take-names");
    assert_eq!(ask(&mut stranger, &enter), "", "when one has died");
    let forwarded = ask(&mut a, &format!("forward {index_of_b}"));
    assert_eq!(ask(&mut stranger, "stolen"), "0", "datagrams were stolen through {taken} names");
    assert_eq!(forwarded, "false");
    // And processes of this user can still start.
    let (mut c, index_of_c) = start();
    assert_eq!(ask(&mut a, &format!("forward {index_of_c}")), "true");
    assert_eq!(ask(&mut c, "receive"), index_of_c.to_string());
    stranger.quit();
    [a, c].iter_mut().for_each(ChildProcess::quit);
}

#[test]
fn a_folder_that_another_user_made_first_is_passed_over_by_all() {
    if !can_change_user("users::a_folder_that_another_user_made_first_is_passed_over_by_all") {
        return;
    }
    let (room, scene) = (Room::new(), Scene::new());
    let name = format!("/tmp/pumice-{}", outer(0));
    // Open to all, closed to us, and a link to a folder of ours.
    room.shell(0, "mkdir -m 700 /tmp/ours");
    room.shell(STRANGER, &format!("mkdir -m 777 {name} && mkdir -m 700 {name}.1 && ln -s ours {name}.2"));
    let mut a = room.bare(0, &[], &scene);
    a.read_reply("index 1");
    let registry = registry_of(&mut a);
    assert_eq!(folder_of(&registry), format!("{name}.3"));
    let notice = ask(&mut a, "notice");
    assert!(notice.contains(&format!("{name} ")) && notice.contains(&format!("uid {STRANGER}")), "{notice}");
    assert!(notice.contains(&format!("{name}.3 is used instead")), "{notice}");
    // It gives the names back: the next process goes where the first one is.
    room.shell(STRANGER, &format!("rmdir {name} && rmdir {name}.1 && rm {name}.2"));
    let mut b = room.bare(0, &[], &scene);
    b.read_reply("index 2");
    assert_eq!((registry_of(&mut b), ask(&mut b, "notice")), (registry, String::new()));
    assert_eq!((ask(&mut a, "forward 2"), ask(&mut b, "receive")), ("true".to_owned(), "2".to_owned()));
    [a, b].iter_mut().for_each(ChildProcess::quit);
}

#[test]
fn root_of_a_user_namespace_neither_uses_nor_takes_the_folder_of_root() {
    if !can_change_user("users::root_of_a_user_namespace_neither_uses_nor_takes_the_folder_of_root") {
        return;
    }
    let (room, scene) = (Room::new(), Scene::new());
    let nested = ["unshare", "--user", "--map-root-user"];
    if !room.command(STRANGER).args(nested).arg("true").output().is_ok_and(|out| out.status.success()) {
        return skip(&format!("user {STRANGER} may not make user namespaces here"));
    }
    // As root inside, it has the number outside in the name.
    let mut inside = room.bare(STRANGER, &nested, &scene);
    inside.read_reply("index 1");
    assert_eq!(folder_of(&registry_of(&mut inside)), format!("/tmp/pumice-{STRANGER}"));
    // So the same user outside is the same user.
    let mut outside = room.bare(STRANGER, &[], &scene);
    outside.read_reply("index 2");
    assert_eq!(
        (ask(&mut inside, "forward 2"), ask(&mut outside, "receive")),
        ("true".to_owned(), "2".to_owned())
    );
    [inside, outside].iter_mut().for_each(ChildProcess::quit);
    let mut root = room.bare(0, &[], &scene);
    root.read_reply("index 1");
    assert_eq!(folder_of(&registry_of(&mut root)), format!("/tmp/pumice-{}", outer(0)));
    root.quit();
    // A user without a number inside looks like all others without one: its folders are told apart all the
    // same.
    room.shell(0, "mkdir -m 700 /tmp/pumice-65534");
    let mut nameless = room.bare(STRANGER, &["unshare", "--user"], &scene);
    nameless.read_reply("index 1");
    assert_eq!(folder_of(&registry_of(&mut nameless)), "/tmp/pumice-65534.1");
    nameless.quit();
}

#[test]
fn a_port_that_another_user_has_is_refused_with_that_users_number() {
    if !can_change_user("users::a_port_that_another_user_has_is_refused_with_that_users_number") {
        return;
    }
    let (room, scene) = (Room::new(), Scene::new());
    let mut theirs = room.bare(STRANGER, &[], &scene);
    theirs.read_reply("index 1");
    let refusal = room.bare(0, &[], &scene).read_reply("refused");
    assert!(refusal.contains(&format!("taken by a process of user {STRANGER}")), "{refusal}");
    assert!(refusal.contains("this one runs as uid 0"), "{refusal}");
    theirs.quit();
}

#[test]
fn processes_with_another_tmp_find_each_other_through_proc_or_are_told_what_to_set() {
    if !can_change_user(
        "users::processes_with_another_tmp_find_each_other_through_proc_or_are_told_what_to_set",
    ) {
        return;
    }
    let here = Room::new();
    let (there, scene) = (Room::beside(&here), Scene::new());
    let mut a = here.bare(0, &[], &scene);
    a.read_reply("index 1");
    // Another /tmp, but the same processes in /proc.
    let mut b = there.bare(0, &[], &scene);
    b.read_reply("index 2");
    let notice = ask(&mut b, "notice");
    assert!(notice.contains("joins them through process") && notice.contains("XDG_RUNTIME_DIR"), "{notice}");
    assert_eq!((ask(&mut a, "forward 2"), ask(&mut b, "receive")), ("true".to_owned(), "2".to_owned()));
    assert_eq!((ask(&mut b, "forward 1"), ask(&mut a, "receive")), ("true".to_owned(), "1".to_owned()));
    b.quit();
    // Other processes too, as in another container.
    let container = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let refusal = there.bare(0, &container, &scene).read_reply("refused");
    let registry =
        format!("in use by a process of this user that is not in the registry /tmp/pumice-{}/", outer(0));
    assert!(refusal.contains(&registry), "{refusal}");
    assert!(refusal.contains("set XDG_RUNTIME_DIR of all processes to one folder"), "{refusal}");
    // The wildcard would get what is for the address, and the other way round: refused as well.
    let wildcard = scene.with_address("0.0.0.0".parse().unwrap());
    let refusal = there.bare(0, &container, &wildcard).read_reply("refused");
    assert!(refusal.contains("not in the registry"), "{refusal}");
    // No /proc at all, as in a bare chroot.
    let bare = ["sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"];
    let refusal = there.bare(0, &bare, &scene).read_reply("refused");
    assert!(refusal.contains("not in the registry"), "{refusal}");
    a.quit();
}

#[test]
fn a_process_that_was_told_another_folder_joins_those_who_have_the_port() {
    if !can_change_user("users::a_process_that_was_told_another_folder_joins_those_who_have_the_port") {
        return;
    }
    let (room, scene) = (Room::new(), Scene::new());
    let mut a = room.bare(0, &[], &scene);
    a.read_reply("index 1");
    room.shell(0, "mkdir -m 700 /tmp/told");
    let mut command = room.command(0);
    command.env("XDG_RUNTIME_DIR", "/tmp/told");
    let mut b = room.process(command, "bare", &scene);
    b.read_reply("index 2");
    assert_eq!(registry_of(&mut b), registry_of(&mut a));
    let notice = ask(&mut b, "notice");
    assert!(
        notice.contains(&format!("in /tmp/pumice-{}, and not in /tmp/told/pumice", outer(0))),
        "{notice}"
    );
    // A process that asks finds all of them, in whichever folder they are.
    assert_eq!(ask(&mut b, "sharers"), "1 2");
    [a, b].iter_mut().for_each(ChildProcess::quit);
}
