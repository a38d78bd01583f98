//! `pumice doctor` is not green where a program would fail.

use std::io::Write as _;
use std::process::{Command, Output};

/// What a shell has first in a network and mount namespace of its own. `$0` is the program, which may lie
/// below a folder that is covered: what was built stays where it is.
const BEGIN: &str = r#"
cd "${0%/*}" && ip link set lo up || exit

# cover FOLDER OPTIONS: a new file system in memory over the folder.
cover() {
    mount -t tmpfs -o "mode=1777$2" none "$1" || exit
    case $PWD in "$1"/*) mkdir -p "$PWD" && mount --no-canonicalize --bind . "$PWD" || exit ;; esac
}
"#;

/// Runs the doctor in a network and mount namespace of its own, after `prepare`; none where the system allows
/// no such namespace.
fn doctor_after(prepare: &str) -> Option<Output> {
    doctor_through(prepare, "\"$0\" doctor")
}

/// The same with another command, in which `$0` is the program.
fn doctor_through(prepare: &str, command: &str) -> Option<Output> {
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-Urnm", "sh", "-c", &format!("{BEGIN}{script}"), env!("CARGO_BIN_EXE_pumice")]);
        for variable in pumice_device::settings::VARIABLES {
            command.env_remove(variable);
        }
        command.env_remove("XDG_RUNTIME_DIR").output().expect("unshare(1) is part of util-linux")
    };
    let tried = unshared("cover /tmp && \"$0\" --version");
    if !tried.status.success() {
        let stderr_text = String::from_utf8_lossy(&tried.stderr);
        let _ = writeln!(
            std::io::stderr(),
            "**** SKIPPED: no namespaces with mounts here: {}",
            stderr_text.trim_end()
        );
        return None;
    }
    Some(unshared(&format!("{prepare} && cd / && exec {command}")))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn an_ordinary_machine_is_green_and_the_device_was_opened() {
    let Some(output) = doctor_after("cover /tmp") else { return };
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output).contains("bytes arrive by RDMA WRITE"), "{output:?}");
}

#[test]
fn the_wire_is_reported_and_shared_memory_is_tried() {
    for wire in ["auto", "udp"] {
        let prepare = format!("cover /tmp && export PUMICE_WIRE={wire}");
        let Some(output) = doctor_after(&prepare) else { return };
        let text = text(&output);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(
            text.contains(&format!("PUMICE_WIRE={wire}: packets to this user's other processes")),
            "{text}"
        );
        assert!(text.contains("ok        shared memory   works: sealed memory came through"), "{text}");
        assert!(text.contains("reaches processes of user 0 in this network namespace (net:["), "{text}");
    }
}

/// A program for perl that refuses memfd_create to itself, and then becomes its arguments.
fn without_memfd_create() -> String {
    // The numbers of memfd_create and prctl.
    const { assert!(cfg!(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))) };
    let (memfd_create, prctl) = if cfg!(target_arch = "x86_64") { (319, 157) } else { (279, 167) };
    // BPF: load the number of the system call; memfd_create fails with EPERM; all else is allowed.
    format!(
        "$f = pack('SCCL' x 4, 0x20,0,0,0, 0x15,0,1,{memfd_create}, 0x06,0,0,0x00050001, \
         0x06,0,0,0x7fff0000); $p = pack('Sx6P', 4, $f); syscall({prctl}, 38, 1, 0, 0, 0) == 0 or die; \
         syscall({prctl}, 22, 2, $p) == 0 or die; exec @ARGV"
    )
}

#[test]
fn where_shared_memory_is_refused_the_call_and_the_remedy_are_named() {
    if Command::new("perl").arg("-v").output().is_err() {
        let _ = writeln!(std::io::stderr(), "**** SKIPPED: a seccomp filter needs perl");
        return;
    }
    let prepare = format!(
        "cover /tmp && export PUMICE_WIRE=auto && set -- perl -e \"{}\" --",
        without_memfd_create().replace('$', "\\$")
    );
    let Some(output) = doctor_through(&prepare, "\"$@\" \"$0\" doctor") else { return };
    let text = text(&output);
    // Programs work, by UDP.
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let line = text.lines().find(|line| line.starts_with("warning   shared memory")).unwrap_or_default();
    assert!(line.contains("all packets go by UDP") && line.contains("memfd_create: "), "{text}");
    assert!(text.contains("→ Allow memfd_create") && text.contains("bytes arrive by RDMA WRITE"), "{text}");
    assert!(
        text.contains("PUMICE_WIRE=auto: packets") && text.contains("UDP, because memory cannot"),
        "{text}"
    );
}

#[test]
fn with_folders_that_cannot_be_written_another_one_is_named_or_it_is_blocking() {
    let read_only = "for f in /tmp /dev/shm /run; do cover $f && mount -o remount,bind,ro $f || exit 3; done";
    let Some(output) = doctor_after(read_only) else { return };
    let text = text(&output);
    let folder =
        text.lines().find_map(|line| line.split_once("processes meet in ")).map(|(_, folder)| folder);
    match folder {
        Some(folder) => {
            let elsewhere = ["/tmp", "/dev/shm", "/run"].iter().all(|known| !folder.starts_with(known));
            assert!(elsewhere && output.status.code() == Some(0), "{text}");
            assert!(text.contains("bytes arrive by RDMA WRITE"), "{text}");
        }
        None => assert!(output.status.code() == Some(1) && text.contains("BLOCKING  device"), "{text}"),
    }
}

#[test]
fn a_full_folder_is_blocking_and_named() {
    let full = "cover /tmp && mkdir /tmp/run && mount -t tmpfs -o size=64k,mode=700 none \
        /tmp/run && { head -c 200000 /dev/zero >/tmp/run/all 2>/dev/null || true; } && export \
        XDG_RUNTIME_DIR=/tmp/run";
    let Some(output) = doctor_after(full) else { return };
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("BLOCKING  device") && text.contains("No space left on device"), "{text}");
    assert!(text.contains("/tmp/run/pumice"), "{text}");
}

/// The socket is made with another effective user, in a process that then becomes the doctor.
#[test]
fn a_port_that_another_user_has_is_blocking_and_that_user_is_named() {
    let perl = "use Socket; $^F = 255; $> = 61002; socket(S, PF_INET, SOCK_DGRAM, 0) or die; \
        bind(S, sockaddr_in(4791, INADDR_ANY)) or die; $> = 0; exec @ARGV";
    let script = format!("{BEGIN}cover /tmp && cd / && exec perl -e \"$1\" -- \"$0\" doctor");
    let outcome = Command::new("unshare")
        .args(["-nm", "sh", "-c", &script, env!("CARGO_BIN_EXE_pumice"), perl])
        .env_remove("XDG_RUNTIME_DIR")
        .output();
    let is_root =
        std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let output = match outcome {
        Ok(output) if is_root && !text(&output).is_empty() => output,
        _ => {
            let _ = writeln!(
                std::io::stderr(),
                "**** SKIPPED: another user's socket needs root, unshare, ip and perl"
            );
            return;
        }
    };
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("BLOCKING") && text.contains("61002"), "{text}");
}

#[test]
fn a_program_without_its_libraries_is_red_for_the_doctor_as_for_run() {
    let alone = "cover /tmp && cp \"$0\" /tmp/pumice";
    let Some(run) = doctor_through(alone, "/tmp/pumice run -- true") else { return };
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    let Some(doctor) = doctor_through(alone, "/tmp/pumice doctor") else { return };
    assert_eq!(doctor.status.code(), Some(1), "{doctor:?}");
    let text = text(&doctor);
    assert!(text.contains("BLOCKING  library"), "{text}");
    assert!(text.contains("pumice run would fail: libpumice.so is neither in /tmp nor in"), "{text}");
    assert!(text.contains("not work here: 1 blocking problem(s)."), "{text}");
    // Worlds are spoken of, also where this machine allows none.
    assert!(text.contains(" worlds "), "{text}");
}

#[test]
fn without_proc_programs_run_and_the_doctor_is_as_green_as_they_are() {
    let hide = "cover /tmp && mount -t tmpfs none /proc";
    let Some(output) = doctor_after(hide) else { return };
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let Some(output) = doctor_through(hide, "\"$0\" run -- sh -c 'echo here; exit 3'") else { return };
    assert_eq!((text(&output).as_str(), output.status.code()), ("here\n", Some(3)), "{output:?}");
    // Called by its name alone, as installed programs are.
    let by_name = "env PATH=\"$(dirname \"$0\"):$PATH\" pumice run -- true";
    let Some(output) = doctor_through(hide, by_name) else { return };
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
