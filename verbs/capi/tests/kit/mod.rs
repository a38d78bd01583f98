//! Running C programs on the object that cargo just built.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, io, process};

const LINKS: [&str; 11] = [
    "libibverbs.so.1",
    "librdmacm.so.1",
    "libmlx5.so.1",
    "libefa.so.1",
    "libmlx4.so.1",
    "libmana.so.1",
    "libibverbs.so",
    "librdmacm.so",
    "libmrc.so.1",
    "libmrc.so",
    "lib_mrc.so",
];

/// libpumice.so, beside the test's own program.
pub fn object() -> PathBuf {
    let own = env::current_exe().expect("a test knows its program");
    let object = own.with_file_name("libpumice.so");
    assert!(object.exists(), "{} is not built", object.display());
    object
}

/// A folder in which the object has all the names that programs ask for.
pub fn library_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = scratch("lib");
        for link in LINKS {
            symlink(object(), folder.join(link)).expect("a new folder takes links");
        }
        folder
    })
}

/// The same with the object as packages have it, without names of functions. None: there is no strip(1).
pub fn stripped_library_folder() -> Option<PathBuf> {
    if !exists("strip") {
        skip("there is no strip(1): apt-get install binutils");
        return None;
    }
    let folder = scratch("stripped");
    let object = folder.join("libpumice.so");
    fs::copy(self::object(), &object).expect("the target folder is writable");
    assert!(Command::new("strip").arg(&object).status().expect("strip(1) runs").success());
    for link in LINKS {
        symlink("libpumice.so", folder.join(link)).expect("a new folder takes links");
    }
    Some(folder)
}

/// A new folder. Tests of one process run at once, and two of them may use one name.
pub fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}-{number}", process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

/// A loopback address that no other test uses, of this process or one beside it.
pub fn address() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = process::id();
    // A process that needs more than one network of them has others above those that processes begin with.
    let network = match number / 254 {
        0 => 16 + (process >> 8 & 0x7f),
        more => 144 + more % 100,
    };
    Ipv4Addr::new(127, network as u8, process as u8, 1 + (number % 254) as u8)
}

/// Says loudly that a test did nothing, and why: past the harness, which keeps what passing tests print.
pub fn skip(reason: &str) {
    let _ = writeln!(io::stderr(), "**** SKIPPED: {reason}");
}

/// Whether a program can be run at all.
pub fn exists(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Compiles `tests/c/<name>.c` against the system's headers; none, if there is no compiler or no headers.
pub fn compile(name: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let program = scratch(name).join(name);
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
    let flags = ["-std=gnu11", "-Wall", "-Werror", "-O1", "-pthread", include, "-o"];
    build(Command::new("cc").args(flags).arg(&program).arg(source).arg("-L").arg(library_folder()).args([
        "-libverbs",
        "-lrdmacm",
        "-Wl,--allow-shlib-undefined",
    ]))
    .then_some(program)
}

/// Runs a compiler; false if there is none, or no header of libibverbs.
pub fn build(compiler: &mut Command) -> bool {
    if !exists("cc") || !Path::new("/usr/include/infiniband/verbs.h").exists() {
        skip("no C compiler or no infiniband/verbs.h: apt-get install gcc libibverbs-dev librdmacm-dev");
        return false;
    }
    let output = compiler.output().expect("cc runs");
    assert!(output.status.success(), "cc:\n{}", String::from_utf8_lossy(&output.stderr));
    true
}

/// A command that uses the object, on one address.
pub fn on(address: Ipv4Addr, program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("timeout");
    command.arg("120").arg(program.as_ref());
    command.env("LD_LIBRARY_PATH", library_folder()).env("PUMICE_ADDR", address.to_string());
    command.env("PUMICE_EXPLAIN", "1").stdin(Stdio::null());
    command
}

/// Starts a command whose output is collected.
pub fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("timeout(1) runs")
}

/// Output as text, when the program succeeded.
pub fn succeeded(what: &str, output: &Output) -> String {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let output_text: Vec<&str> = text.lines().filter(|line| !line.starts_with("pumice: ")).collect();
    assert!(output.status.success(), "{what}: {}\n{}\n{text}", output.status, output_text.join("\n"));
    text
}
