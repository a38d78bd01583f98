//! The files that programs leave for people: on a full disk, beyond a limit on their size, and for whom they
//! are.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

#[path = "fault/scratch.rs"]
mod scratch;

use scratch::{Scratch, address, compile};

/// Linux's number of the signal of a file that is larger than it may be.
const SIGXFSZ: i32 = 25;

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a script of bash in which `$pumice` and `$program` are the programs, `$scratch` is a folder of the
/// test, and `$address` an address that no other test uses. `wrapper` is a command that runs bash.
fn bash(scratch: &Scratch, program: &Path, end: u8, wrapper: &[&str], script: &str) -> Output {
    let words = [wrapper, &["bash", "-c", script]].concat();
    let mut command = Command::new(words[0]);
    for variable in pumice_device::settings::VARIABLES {
        command.env_remove(variable);
    }
    command
        .args(&words[1..])
        .stdin(Stdio::null())
        .env("XDG_RUNTIME_DIR", &scratch.0)
        .env("scratch", &scratch.0);
    command.env("pumice", env!("CARGO_BIN_EXE_pumice")).env("program", program).env("address", address(end));
    command.output().expect("the command can be run")
}

/// The same with a disk at `$disk` that has room for 64 KiB; none where it may not be mounted.
fn on_small_disk(scratch: &Scratch, program: &Path, end: u8, script: &str) -> Option<Output> {
    let disk = scratch.0.join("disk");
    let _ = fs::create_dir(&disk);
    let mount = "disk=$scratch/disk; mount -t tmpfs -o size=64k none \"$disk\"";
    let allowed = bash(scratch, program, end, &["unshare", "-Urm"], mount);
    if !allowed.status.success() {
        let _ = writeln!(std::io::stderr(), "**** SKIPPED: unshare -Urm and mount are not allowed here");
        return None;
    }
    Some(bash(scratch, program, end, &["unshare", "-Urm"], &format!("{mount} && {script}")))
}

#[test]
fn a_full_disk_is_reported_once_for_each_file_and_the_program_continues() {
    let scratch = Scratch::new("full-disk");
    let Some(program) = compile(&scratch, "paced") else { return };
    let run =
        |options: &str| format!("echo 1000 | \"$pumice\" run --addr $address {options} -- \"$program\"");
    for (name, options) in [
        ("c.pcapng", "--capture \"$disk/c.pcapng\""),
        ("t.trace", "--trace \"$disk/t.trace\""),
        (".pcapng", "--record \"$disk\""),
        ("f.jsonl", "--fault 'note opcode=send' --fault-report \"$disk/f.jsonl\""),
        ("calls", "--fault 'slow call=ibv_post_send time=1us' --fault-report \"$disk/calls\""),
    ] {
        let Some(output) = on_small_disk(&scratch, &program, 21, &run(options)) else { return };
        let (stderr_of, out) = (stderr_of(&output), String::from_utf8_lossy(&output.stdout));
        assert!(out.contains("done 1000"), "{name}: the program did not go on: {out}{stderr_of}");
        let about: Vec<&str> =
            stderr_of.lines().filter(|line| line.contains("No space left on device")).collect();
        // A record has several files.
        let of_this: Vec<&&str> = about.iter().filter(|line| line.contains(name)).collect();
        assert!(of_this.len() == 1 && of_this[0].starts_with("pumice: "), "{name}: {stderr_of}");
        assert!(about.len() == 1 || options.starts_with("--record"), "{name}: {stderr_of}");
    }
}

#[test]
fn what_was_whole_on_a_full_disk_can_be_read() {
    let scratch = Scratch::new("full-whole");
    let Some(program) = compile(&scratch, "paced") else { return };
    let script = "echo 1000 | \"$pumice\" run --addr $address --capture \"$disk/c\" \
                  --fault 'note opcode=send' --fault-report \"$disk/f\" -- \"$program\" 2>/dev/null
                  \"$pumice\" capture --summary \"$disk/c\" | tail -n 1 &&
                  \"$pumice\" fault assert \"$disk/f\"";
    let Some(output) = on_small_disk(&scratch, &program, 22, script) else { return };
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && out.contains("RoCE packets with"), "{out}{}", stderr_of(&output));
    assert!(out.contains(", 0 bad"), "the capture ends with a whole packet: {out}");
}

#[test]
fn a_report_of_checks_without_room_is_an_exit_code() {
    let scratch = Scratch::new("full-check");
    let Some(program) = compile(&scratch, "paced") else { return };
    let fill = "head -c 65536 /dev/zero >\"$disk/full\" 2>/dev/null;";
    for (format, options) in [("json", "--check-format json"), ("text", "--check-format text")] {
        let script = format!(
            "{fill} echo 3 | \"$pumice\" check --addr $address --check-exit 7 --check-report \"$disk/r\" \
             {options} -- \"$program\""
        );
        let Some(output) = on_small_disk(&scratch, &program, 23, &script) else { return };
        let stderr_of = stderr_of(&output);
        assert_eq!(stderr_of.matches("No space left on device").count(), 1, "{format}: {stderr_of}");
        assert!(stderr_of.contains("/r: the report of checks"), "{format}: {stderr_of}");
        assert_eq!(output.status.code(), Some(1), "{format}: {stderr_of}");
        assert!(stderr_of.contains("its report of checks is not complete"), "{format}: {stderr_of}");
    }
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_no_signal() {
    let scratch = Scratch::new("size-limit");
    let Some(program) = compile(&scratch, "paced") else { return };
    // KiB: nothing; less than the files beside the registry have; less than what is asked for will have.
    for (limit, options, sentence) in [
        (0, "", "File too large"),
        (100, "", ""),
        (
            1024,
            "--capture \"$scratch/c\"",
            "/c: the capture ends here, because it cannot be written: File too large",
        ),
        (1024, "--trace \"$scratch/t\"", "/t: the trace ends here: it cannot be written: File too large"),
        (
            1024,
            "--fault 'note opcode=send' --fault-report \"$scratch/f\"",
            "/f: the report of faults ends here",
        ),
    ] {
        let script = format!(
            "ulimit -f {limit}; echo 9000 | \"$pumice\" run --addr $address {options} -- \"$program\"; \
             exit ${{PIPESTATUS[1]}}"
        );
        let output = bash(&scratch, &program, 24, &[], &script);
        let stderr_of = stderr_of(&output);
        assert_ne!(output.status.code(), Some(128 + SIGXFSZ), "{options}: {stderr_of}");
        assert_ne!(output.status.signal(), Some(SIGXFSZ), "{options}: {stderr_of}");
        assert!(stderr_of.contains(sentence), "limit {limit} {options}: {stderr_of}");
        let went_on = String::from_utf8_lossy(&output.stdout).contains("done 9000");
        assert_eq!(went_on, limit > 0, "{options}: {stderr_of}");
    }
    // A log that is a file, and the program's own write, which still ends it.
    let script = "ulimit -f 1024; head -c 1048576 /dev/zero >\"$scratch/log\"; \
                  echo 3 | \"$pumice\" run --addr $address --log debug -- \"$program\" 2>>\"$scratch/log\" |
                  grep done; \
                  \"$pumice\" run -- head -c 2000000 /dev/zero >\"$scratch/own\"; exit $?";
    let output = bash(&scratch, &program, 24, &[], script);
    assert!(String::from_utf8_lossy(&output.stdout).contains("done 3"), "{output:?}");
    assert_eq!(output.status.code(), Some(128 + SIGXFSZ), "{output:?}");
}

#[test]
fn what_programs_send_is_written_for_their_user_alone() {
    let scratch = Scratch::new("modes");
    let Some(program) = compile(&scratch, "paced") else { return };
    let script = "umask 0; echo old >\"$scratch/c\"
        run() { echo 3 | \"$pumice\" run --addr $address \"$@\" -- \"$program\" >/dev/null; }
        run --capture \"$scratch/c\" && run --trace \"$scratch/t\" && run --record \"$scratch/new/record\" &&
        run --fault 'note opcode=send' --fault-report \"$scratch/f\" &&
        run --check --check-report \"$scratch/k.json\" &&
        \"$pumice\" trace view -o \"$scratch/page.html\" \"$scratch/t\" >/dev/null &&
        cd \"$scratch\" && find c t new f k.json page.html -printf '%m %y %p\\n'";
    let output = bash(&scratch, &program, 25, &[], script);
    assert!(output.status.success(), "{output:?}");
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(listed.lines().count() >= 10, "{listed}");
    for line in listed.lines() {
        let right = if line.contains(" d ") { "700 " } else { "600 " };
        assert!(line.starts_with(right), "{line}\n{listed}");
    }
}

#[test]
fn a_stopped_process_that_removes_trees_is_named_and_the_program_starts() {
    let scratch = Scratch::new("held-lock");
    let folder = scratch.0.join("pumice");
    let first = scratch.pumice(&["run", "--", "true"]).output().expect("it can be run");
    let namespace = fs::metadata("/proc/self/ns/net").expect("Linux").ino();
    let lock = folder.join(format!("sysfs.lock-net{namespace}"));
    assert!(first.status.success() && lock.is_file(), "{first:?}");
    let script = "use Fcntl ':flock'; open(F, '>>', $ARGV[0]); flock(F, LOCK_EX); $| = 1; \
                  print \"has it\\n\"; sleep 600";
    let mut holder = Command::new("perl");
    holder.args(["-e", script]).arg(lock).stdout(Stdio::piped());
    let mut holder = holder.spawn().expect("perl can be run");
    let mut line = String::new();
    BufReader::new(holder.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    assert_eq!(line, "has it\n");
    let pid = Pid::from_child(&holder);
    kill_process(pid, Signal::STOP).expect("it is ours");
    let output = scratch.pumice(&["run", "--", "true"]).output().expect("it can be run");
    let asked = scratch.pumice(&["run", "--sysfs", "--", "true"]).output().expect("it can be run");
    kill_process(pid, Signal::KILL).expect("it is ours");
    holder.wait().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let sentence =
        format!("process {}, which has locked it, is stopped: continue it (kill -CONT", holder.id());
    assert!(stderr_of(&output).contains(&sentence), "{output:?}");
    assert!(
        stderr_of(&output).contains("so the program sees the system's /sys/class/infiniband"),
        "{output:?}"
    );
    assert_eq!(asked.status.code(), Some(1), "what was asked for cannot be had: {asked:?}");
    let after = scratch.pumice(&["run", "--", "true"]).output().expect("it can be run");
    assert!(after.status.success() && after.stderr.is_empty(), "{after:?}");
}

#[test]
fn a_program_that_ends_without_closing_its_device_leaves_nothing_in_memory() {
    let scratch = Scratch::new("left-domain");
    let Some(program) = compile(&scratch, "leaves_domain") else { return };
    // On a disk, if there is one: else the folder of the registry is in memory, and is used itself.
    let runtime = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("left-domain-{}", std::process::id()));
    let _ = fs::remove_dir_all(&runtime);
    fs::create_dir_all(&runtime).expect("the target folder is writable");
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).expect("it is ours");
    for how in ["close", "leave"] {
        let mut command = scratch.pumice(&["run", "--addr", &address(26), "--"]);
        command.env("XDG_RUNTIME_DIR", &runtime).arg(&program).arg(scratch.0.join("named")).arg(how);
        let output = command.output().expect("it can be run");
        assert!(output.status.success(), "{output:?}");
        let files = fs::read_dir(runtime.join("pumice")).expect("the registry's");
        let left: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
        let is_left = |path: &&PathBuf| {
            let name = path.to_string_lossy();
            name.ends_with("-memory") || name.contains("-xrcd-")
        };
        let in_memory = Command::new("ls").args(["-AR", "/dev/shm"]).output().expect("ls can be run");
        let in_memory = String::from_utf8_lossy(&in_memory.stdout);
        assert_eq!(left.iter().find(is_left), None, "{how}: {output:?}\n{in_memory}");
    }
    fs::remove_dir_all(&runtime).expect("it is ours");
}
