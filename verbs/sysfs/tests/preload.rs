//! Programs under the preload: they see the tree, and everything else as it is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// libpumice_sysfs.so, beside the test's own program; a link to it where the loader would read two names into
/// its own.
fn object() -> &'static Path {
    static OBJECT: OnceLock<PathBuf> = OnceLock::new();
    OBJECT.get_or_init(|| {
        let own = std::env::current_exe().expect("a test knows its program");
        let object = own.with_file_name("libpumice_sysfs.so");
        assert!(object.exists(), "{} is not built", object.display());
        if !object.to_string_lossy().contains([' ', ':']) {
            return object;
        }
        let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let link = folder.join(format!("pumice-preload-{}.so", std::process::id()));
        symlink(&object, &link).expect("no other process has its number");
        link
    })
}

/// A new folder of this process with a small tree in it.
fn tree(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    for part in ["dev/infiniband", "sys/class/infiniband", "sys/devices/virtual/infiniband/pumice0"] {
        fs::create_dir_all(folder.join(part)).expect("the target folder is writable");
    }
    let device = folder.join("sys/devices/virtual/infiniband/pumice0");
    fs::write(device.join("node_type"), "1: CA\n").expect("a file in it as well");
    let link = folder.join("sys/class/infiniband/pumice0");
    symlink("../../devices/virtual/infiniband/pumice0", link).expect("and a link");
    symlink("/dev/null", folder.join("dev/infiniband/uverbs0")).expect("and another");
    folder.canonicalize().expect("it is there")
}

fn under(preload: bool, tree: Option<&Path>, program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg("120").arg(program).current_dir(env!("CARGO_TARGET_TMPDIR")).stdin(Stdio::null());
    command.env_remove("PUMICE_SYSFS").env("LC_ALL", "C");
    if preload {
        command.env("LD_PRELOAD", object());
    }
    if let Some(tree) = tree {
        command.env("PUMICE_SYSFS", tree);
    }
    command
}

fn printed(what: &str, output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}\n{error}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn run(tree: &Path, program: &str, arguments: &[&str]) -> String {
    let output = under(true, Some(tree), Path::new(program)).args(arguments).output().expect("timeout runs");
    printed(program, &output)
}

/// Compiles `tests/c/<source>.c`; false, said aloud, if there is no compiler.
fn compile(source: &str, arguments: &[&str], made: &Path) -> bool {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{source}.c"));
    let flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"];
    match Command::new("cc").args(flags).arg(made).arg(source).args(arguments).output() {
        Ok(compiled) => {
            printed("cc", &compiled);
            true
        }
        Err(error) => {
            eprintln!("**** SKIPPED: no C compiler ({error}): apt-get install gcc");
            false
        }
    }
}

#[test]
fn every_call_goes_where_its_path_leads() {
    let tree = tree("paths");
    let program = tree.join("paths");
    if compile("paths", &[], &program) {
        let output = under(true, Some(&tree), &program).output().expect("timeout runs");
        assert_eq!(printed("paths", &output), "ok\n");
    }
}

#[test]
fn a_cancelled_thread_is_unwound_through_the_wrappers() {
    let tree = tree("cancelled");
    let (program, fifo) = (tree.join("cancelled"), tree.join("fifo"));
    if compile("cancelled", &[], &program) {
        for _ in 0..20 {
            let output = under(true, Some(&tree), &program).arg(&fifo).output().expect("timeout runs");
            assert_eq!(printed("cancelled", &output), "ok\n");
        }
    }
}

/// As auditwheel makes it: the bundled library has another name, and is found beside what needs it.
#[test]
fn a_bundled_libibverbs_gives_way_to_the_device() {
    let folder = tree("wheel");
    let libraries = folder.join("package.libs");
    fs::create_dir(&libraries).expect("a new folder takes another");
    let versions = folder.join("versions");
    fs::write(&versions, "IBVERBS_1.1 { global: *; };").expect("and a file");
    let script = format!("-Wl,--version-script={}", versions.display());
    let shared = |whose: &str, made: &Path| {
        let soname = format!("-Wl,-soname,{}", made.file_name().expect("a name").display());
        let whose = format!("-DWHOSE=\"{whose}\"");
        compile("wheel", &["-shared", "-fPIC", "-DPART_VERBS", &whose, &soname, &script], made)
    };
    let (device, bundled) = (folder.join("libdevice.so"), libraries.join("libibverbs-1de1263b.so.1.14.48.0"));
    if !shared("device", &device) || !shared("bundled", &bundled) {
        return;
    }
    let needs = bundled.to_str().expect("ASCII");
    let plugin = ["-shared", "-fPIC", "-DPART_PLUGIN", needs, "-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"];
    assert!(compile("wheel", &plugin, &libraries.join("plugin.so")));
    let program = folder.join("main");
    let runpath = ["-Wl,-rpath,$ORIGIN/package.libs", "-Wl,--enable-new-dtags", "-ldl"];
    assert!(compile("wheel", &runpath, &program));
    let printed_by = |preload: bool, library: Option<&Path>| {
        let mut command = under(preload, None, &program);
        command.env_remove("PUMICE_LIBRARY");
        command.envs(library.map(|library| ("PUMICE_LIBRARY", library)));
        printed("wheel", &command.output().expect("timeout runs"))
    };
    assert_eq!(printed_by(false, Some(&device)), "bundled\n");
    assert_eq!(printed_by(true, None), "bundled\n");
    assert_eq!(printed_by(true, Some(&device)), "device\n");
    assert_eq!(printed_by(true, Some(Path::new("/nowhere/lib.so"))), "bundled\n", "it goes on without");
}

#[test]
fn shell_tools_see_the_tree() {
    let tree = tree("tools");
    assert_eq!(run(&tree, "ls", &["/sys/class/infiniband"]), "pumice0\n");
    assert_eq!(run(&tree, "cat", &["/sys/class/infiniband/pumice0/node_type"]), "1: CA\n");
    let device = "/sys/devices/virtual/infiniband/pumice0";
    assert_eq!(run(&tree, "readlink", &["-f", "/sys/class/infiniband/pumice0"]), format!("{device}\n"));
    let list = run(&tree, "ls", &["-l", "/sys/class/infiniband/", "/dev/infiniband"]);
    assert!(list.contains("uverbs0 -> /dev/null") && list.contains("pumice0 -> ../../devices"), "{list}");
    let script = "cd /sys/class/infiniband && for device in *; do cat $device/node_type; done; \
                  [ -c /dev/infiniband/uverbs0 ] && [ ! -e /dev/infiniband/umad0 ] && [ -c /dev/null ]";
    assert_eq!(run(&tree, "sh", &["-c", script]), "1: CA\n");
}

#[test]
fn python_sees_the_tree() {
    let tree = tree("python");
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("**** SKIPPED: no python3");
        return;
    }
    let script = "import os, glob\n\
                  top = '/sys/class/infiniband'\n\
                  print(os.listdir(top), os.path.realpath(top + '/pumice0'), glob.glob(top + \
                  '/*/node_type'))\n\
                  print(open(top + '/pumice0/node_type').read(), end='')\n\
                  print([name for _, _, names in os.walk(top, followlinks=True) for name in names])\n";
    let expected = "['pumice0'] /sys/devices/virtual/infiniband/pumice0 \
                    ['/sys/class/infiniband/pumice0/node_type']\n1: CA\n['node_type']\n";
    assert_eq!(run(&tree, "python3", &["-c", script]), expected);
}

#[test]
fn without_a_tree_nothing_changes() {
    let there = Path::new("/sys/class/infiniband").exists();
    let (relative, long) = (Path::new("tree"), PathBuf::from(format!("/{}", "x".repeat(600))));
    for tree in [None, Some(Path::new("")), Some(relative), Some(&long)] {
        let output =
            under(true, tree, Path::new("ls")).arg("/sys/class/infiniband").output().expect("timeout runs");
        assert_eq!(output.status.success(), there, "{tree:?}");
    }
    let list = |preload| {
        printed(
            "ls",
            &under(preload, None, Path::new("ls")).args(["-l", "/sys/class"]).output().expect("runs"),
        )
    };
    assert_eq!(list(true), list(false));
}
