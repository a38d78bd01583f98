//! The blocks of shell commands of a document, run one after the other in a folder and a network namespace of
//! their own.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::blocks::{Block, blocks, root};

/// How long the commands of a document take at most, on a machine that is busy.
const MAX_SECONDS: &str = "300";

/// Programs of others that documents start. Without one of them the rest of the document is not run.
const PROGRAMS: [&str; 22] = [
    "cc",
    "cmake",
    "curl",
    "gdb",
    "ib_read_bw",
    "ib_send_bw",
    "ib_send_lat",
    "ib_write_bw",
    "ib_write_lat",
    "ibv_devices",
    "ibv_devinfo",
    "ibv_rc_pingpong",
    "ibv_ud_pingpong",
    "jq",
    "meson",
    "pkg-config",
    "python3",
    "rping",
    "strace",
    "tcpdump",
    "valgrind",
    "ip",
];

/// Programs that documents speak of as the reader's own: what stands in their place here.
const REPLACEMENTS: [(&str, &str); 2] = [
    ("server", "exec ibv_rc_pingpong -d pumice0 -g 0 -n 200"),
    ("client", "exec ibv_rc_pingpong -d pumice0 -g 0 -n 200 \"$@\""),
];

/// The same, where one process with two queue pairs is enough: the program of the first tutorial, and how
/// many messages it sends. A shuffled schedule makes each of them slow.
const ONE_PROCESS: [(&str, u32); 3] = [("a_program", 200), ("my_test", 20), ("your_test", 200)];

/// The document that has that program, and its name there.
const TUTORIAL: (&str, &str) = ("docs/tutorials/first-program.md", "hello.c");

/// The folder of the course.
const COURSE: &str = "docs/course";

/// Begins the script of a document.
const PROLOGUE: &str = r#"
set -euo pipefail
servers=()
# listens PROCESS: it has a socket that listens, or a child of it.
listens() {
    local sockets process
    sockets=$(awk '$4 == "0A" { printf "%s%s", separator, $10; separator = "|" }' /proc/net/tcp*)
    [[ -n $sockets ]] || return 1
    for process in "$1" $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
        ! ls -l "/proc/$process/fd" 2>/dev/null | grep -qE "socket:\[($sockets)\]" || return 0
    done
    return 1
}
# The last job in the background is a server: goes on when it listens, waits for gdb, or has ended.
begun() {
    servers+=($!)
    while kill -0 $! 2>/dev/null && ! listens $! && ! grep -q ': gdb -p ' "$printed"; do sleep 0.01; done
}
ended() {
    local server
    for server in ${servers[@]+"${servers[@]}"}; do wait "$server"; done
    servers=()
}
stopped() {
    local server
    for server in ${servers[@]+"${servers[@]}"}; do kill "$server" 2>/dev/null || true; done
    for server in ${servers[@]+"${servers[@]}"}; do wait "$server" 2>/dev/null || true; done
    servers=()
}
"#;

/// A folder that goes away with the value.
struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn new(document: &Path) -> ScratchFolder {
        let name = document.display().to_string().replace(['/', '.'], "-");
        let path = std::env::temp_dir().join(format!("pumice-docs-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        for folder in ["work", "run", "out"] {
            fs::DirBuilder::new().mode(0o700).create(path.join(folder)).unwrap();
        }
        for (name, body) in REPLACEMENTS {
            let file = path.join("work").join(name);
            fs::write(&file, format!("#!/bin/sh\n{body}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        // Pages of the course are read beside its programs.
        if document.starts_with(COURSE) {
            for entry in fs::read_dir(root().join(COURSE)).unwrap() {
                let file = entry.unwrap().path();
                let name = file.file_name().unwrap_or_default();
                fs::copy(&file, path.join("work").join(name)).unwrap();
            }
        }
        let (tutorial, hello) = TUTORIAL;
        let program = blocks(Path::new(tutorial)).into_iter().find(|block| block.said("file") == Some(hello));
        fs::write(path.join(hello), program.expect("the tutorial has its program").text).unwrap();
        ScratchFolder(path)
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether programs of C can be compiled and run here.
pub(crate) fn can_compile() -> bool {
    is_there("cc") && Path::new("/usr/include/infiniband/verbs.h").is_file()
}

fn is_there(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// A program that the block names and this machine lacks.
fn missing(block: &Block) -> Option<&'static str> {
    let is_of_a_name = |c: char| c.is_alphanumeric() || "_-".contains(c);
    let code = block.text.lines().map(|line| line.split(" # ").next().unwrap_or_default());
    let words: Vec<&str> = code.flat_map(|line| line.split(|c| !is_of_a_name(c))).collect();
    PROGRAMS.into_iter().find(|program| words.contains(program) && !is_there(program))
}

/// Arguments of unshare(1) that give a command a network and processes of its own; `None`: they are not
/// allowed.
pub(crate) fn namespaces() -> Option<&'static [&'static str]> {
    const VARIANTS: [&[&str]; 2] = [
        &["-n", "-p", "-f", "--kill-child", "--mount-proc"],
        &["-U", "-r", "-n", "-p", "-f", "--kill-child", "--mount-proc"],
    ];
    let is_able = |way: &&&[&str]| {
        let script = ["sh", "-c", "ip link set lo up"];
        let output = Command::new("unshare").args(**way).args(script).output();
        output.is_ok_and(|output| output.status.success())
    };
    VARIANTS.iter().find(is_able).copied()
}

/// The commands of a block for the script: those with a server in one shell, or in the background, go on when
/// that listens. Servers that come after a client begin when the earlier ones have ended.
fn commands(text: &str) -> String {
    let mut script = String::new();
    let mut whole = String::new();
    let mut has_had = (false, false);
    for line in text.lines() {
        whole.push_str(line);
        if line.ends_with('\\') {
            whole.push('\n');
            continue;
        }
        let (code, comment) = whole.split_once(" # ").unwrap_or((&whole, ""));
        let server = code.trim_end().strip_suffix('&').filter(|code| !code.ends_with('&'));
        let server = server.or_else(|| comment.contains("in one shell").then_some(code));
        match server {
            Some(server) => {
                let before = if has_had == (true, true) { "ended\n" } else { "" };
                let _ = writeln!(script, "{before}{} &\nbegun", server.trim());
                has_had = (true, false);
            }
            None => {
                let _ = writeln!(script, "{whole}");
                has_had.1 = true;
            }
        }
        whole.clear();
    }
    script
}

/// The script of a document. It ends before a block that needs what is not here.
fn script(blocks: &[Block], folder: &Path, skipped: &mut Vec<String>) -> String {
    let mut script = PROLOGUE.to_owned();
    let folder = folder.display();
    let _ = writeln!(script, "cd '{folder}/work'\nexport PAGES='{folder}'");
    let uses = |name: &str| {
        let program = format!("./{name}");
        blocks.iter().any(|block| block.text.contains(&program) || block.remark.contains(&program))
    };
    for (name, messages) in ONE_PROCESS.iter().filter(|(name, _)| uses(name)) {
        let few = format!("sed 's/MESSAGES = 200/MESSAGES = {messages}/' ../{}", TUTORIAL.1);
        let _ = writeln!(script, "{few} | cc -x c -o {name} - -libverbs");
    }
    for (number, block) in blocks.iter().enumerate() {
        if let Some(file) = block.said("file") {
            let _ = writeln!(script, "cat >{file} <<'end-of-this-file'\n{}end-of-this-file", block.text);
        }
        if block.language != "sh" || block.excuse().is_some() {
            continue;
        }
        if let Some(program) = missing(block) {
            skipped.push(format!(
                "{}: there is no {program} here; the rest of the page was not run",
                block.location()
            ));
            break;
        }
        let _ = writeln!(script, "echo {number} >>'{folder}/begun'; printed='{folder}/out/{number}'");
        for before in block.all_remarks("first") {
            let _ = writeln!(script, "{}", commands(before));
        }
        // Only a last command may end otherwise than well.
        let (before, last) = match block.said("exit code") {
            Some(code) => {
                let text = block.text.trim_end();
                let (before, last) = text.rsplit_once('\n').unwrap_or(("", text));
                (format!("{before}\n"), format!("code=0\n{last} || code=$?\n[[ $code == {code} ]]\n"))
            }
            // Programs may fail because of their faults, but no command line may be refused.
            None if block.remark.contains("may fail") => {
                let refused = |line: &str| format!("{line} || (($? != 2 && $? < 126))\n");
                let begins = |line: &&str| !line.trim().is_empty();
                (block.text.lines().filter(begins).map(strip).map(refused).collect(), String::new())
            }
            None => (block.text.clone(), String::new()),
        };
        let end = if block.remark.contains("servers go on") { "stopped" } else { "ended" };
        let _ = writeln!(
            script,
            "{{\n{}{last}{end}\n}} </dev/null >'{folder}/out/{number}' 2>&1",
            commands(&before)
        );
    }
    script
}

/// The line without the comment at its end.
fn strip(line: &str) -> &str {
    line.split_once(" # ").map_or(line, |(code, _)| code).trim_end()
}

/// Whether a line fits a pattern, in which `…` stands for anything, and a space for any number of them.
fn fits(pattern: &str, line: &str) -> bool {
    let even = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (pattern, line) = (even(pattern), even(line));
    let mut rest = line.as_str();
    pattern.split('…').all(|part| match rest.find(part.trim()) {
        Some(at) => {
            rest = rest.get(at + part.trim().len()..).unwrap_or_default();
            true
        }
        None => false,
    })
}

/// Runs the commands of a document, and compares what they print with what the document says they do.
/// What was not run is added to `skipped`.
pub(crate) fn run(document: &Path, namespaces: &[&str], skipped: &mut Vec<String>) -> Result<(), String> {
    let blocks = blocks(document);
    if !blocks.iter().any(|block| block.language == "sh" && block.excuse().is_none()) {
        return Ok(());
    }
    let scratch = ScratchFolder::new(document);
    let file = scratch.0.join("script");
    fs::write(&file, script(&blocks, &scratch.0, skipped)).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_pumice")).parent().unwrap().to_owned();
    let mut path = vec![programs];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let output = Command::new("timeout")
        .args(["-k", "5", MAX_SECONDS, "unshare"])
        .args(namespaces)
        .args(["bash", "-c", "ip link set lo up && exec bash \"$0\""])
        .arg(&file)
        .env("PATH", std::env::join_paths(path).unwrap())
        .env("XDG_RUNTIME_DIR", scratch.0.join("run"))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("timeout(1) does not run: {error}"))?;
    let begun = fs::read_to_string(scratch.0.join("begun")).unwrap_or_default();
    let begun: Vec<usize> = begun.lines().filter_map(|line| line.parse().ok()).collect();
    let printed = |number: usize| {
        let bytes = fs::read(scratch.0.join("out").join(number.to_string())).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    if !output.status.success() {
        let last = begun.last().copied();
        let location = last.and_then(|last| blocks.get(last)).map_or_else(String::new, Block::location);
        let said = last.map(printed).unwrap_or_default();
        let own = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{location}: {} after:\n{said}{own}", output.status));
    }
    compare(&blocks, &begun, printed)
}

/// Each line of a block that the document says was printed stands in what the commands before it printed,
/// and a block that leaves lines of the program out says so with a line that is `…`. What pumice says of
/// itself may differ from run to run, and is left out without a word.
fn compare(blocks: &[Block], begun: &[usize], printed: impl Fn(usize) -> String) -> Result<(), String> {
    for (number, block) in blocks.iter().enumerate() {
        if block.remark != "printed" {
            continue;
        }
        let Some(before) = begun.iter().copied().rfind(|&before| before < number) else { continue };
        let is_between = |b: &Block| b.language == "sh";
        if blocks.get(before + 1..number).unwrap_or_default().iter().any(is_between) {
            continue;
        }
        let printed = printed(before);
        for pattern in block.text.lines().filter(|line| !line.trim().is_empty()) {
            if !printed.lines().any(|line| fits(pattern, line)) {
                return Err(format!("{}: {pattern:?} was not printed:\n{printed}", block.location()));
            }
        }
        let says_so = block.text.lines().any(|line| line.trim() == "…");
        let is_shown = |line: &str| block.text.lines().any(|pattern| fits(pattern, line));
        let left_out =
            |line: &&str| !line.trim().is_empty() && !line.starts_with("pumice: ") && !is_shown(line);
        if let (false, Some(line)) = (says_so, printed.lines().find(left_out)) {
            let location = block.location();
            return Err(format!("{location}: {line:?} is left out, and no line `…` says so:\n{printed}"));
        }
    }
    Ok(())
}

#[test]
fn servers_are_begun_and_patterns_fit() {
    let script = commands("a -x   # in one shell\nb   # and in another\nc && d\nserve &\n");
    assert_eq!(script, "a -x &\nbegun\nb   # and in another\nc && d\nended\nserve &\nbegun\n");
    assert!(fits("QP … RTR refused", "pumice: QP 0x010011 RTR refused: attribute"));
    assert!(!fits("QP … RTS", "pumice: QP 0x010011 RTR refused"));
}
