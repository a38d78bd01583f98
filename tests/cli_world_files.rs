//! `pumice world`: the files that a run leaves are the same in each run, byte by byte.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder of this test, which goes with it.
struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn new(name: &str) -> ScratchFolder {
        let folder = std::env::temp_dir().join(format!("pumice-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::DirBuilder::new().mode(0o700).create(&folder).expect("a folder can be made");
        ScratchFolder(folder)
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Server and client of a program of perftest; the server is first.
const PAIR: &str = "\"$@\" & sleep 0.1; \"$@\" 127.0.0.1; wait";
const INSTRUMENTS: [&str; 10] = [
    "--trace",
    "t.%p",
    "--capture",
    "c.%p.pcapng",
    "--check",
    "--check-report",
    "k.%p.json",
    "--fault-report",
    "f.%p.json",
    "--loss=5%",
];

/// The files of a run by name, and what it said; `None`: this machine does not have the program.
fn files(scratch: &ScratchFolder, program: &[&str]) -> Option<(BTreeMap<String, Vec<u8>>, String)> {
    if !Path::new("/usr/bin").join(program[0]).exists() {
        return None;
    }
    // Both runs are in one folder, whose name the files may have.
    let folder = scratch.0.join("run");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).expect("a folder can be made");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.args(["world", "--seed", "3", "--addr", "127.0.0.1"]).args(INSTRUMENTS);
    command.args(["--", "sh", "-c", PAIR, "sh"]).args(program);
    let ran =
        command.current_dir(&folder).env("XDG_RUNTIME_DIR", &scratch.0).output().expect("it can be run");
    let output_text = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(
        ran.status.success() && output_text.contains("pumice: certified: this run repeats"),
        "{output_text}"
    );
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(&folder).expect("the folder is there") {
        let path = entry.expect("an entry can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.insert(name, std::fs::read(&path).expect("a file can be read"));
    }
    Some((files, output_text))
}

fn are_equal(name: &str, program: &[&str]) {
    let scratch = ScratchFolder::new(name);
    let Some((first, output_text)) = files(&scratch, program) else { return };
    let Some((second, again)) = files(&scratch, program) else { return };
    assert_eq!(first.len(), 8, "two processes, four files each: {:?}", first.keys());
    assert_eq!(first.keys().collect::<Vec<_>>(), second.keys().collect::<Vec<_>>());
    for (file, bytes) in &first {
        assert!(!bytes.is_empty() && second.get(file) == Some(bytes), "{file} differs, or is empty");
    }
    assert_eq!(output_text, again);
}

#[test]
fn files_of_sends_are_equal() {
    are_equal("world-sends", &["ib_send_bw", "-n", "100", "-s", "4096"]);
}

#[test]
fn files_of_writes_that_are_looked_for_in_memory_are_equal() {
    are_equal("world-writes", &["ib_write_lat", "-n", "50", "-s", "8"]);
}
