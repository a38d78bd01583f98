//! `pumice run --sysfs`: what a program finds below /sys/class/infiniband is what libibverbs tells it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `pumice run --sysfs` with a runtime folder of the test's own.
fn pumice(runtime: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.args(["run", "--sysfs"]).env("XDG_RUNTIME_DIR", runtime);
    for variable in pumice_device::settings::VARIABLES.into_iter().chain(["LD_LIBRARY_PATH", "LD_PRELOAD"]) {
        command.env_remove(variable);
    }
    command
}

fn printed(command: &mut Command) -> String {
    let output: Output = command.output().expect("the program can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{error}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sysfs-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

/// What `ibv_devinfo -v` says behind "name:".
fn said<'a>(devinfo: &'a str, name: &str) -> Option<&'a str> {
    devinfo.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':').map(str::trim))
}

#[test]
fn files_and_verbs_say_the_same() {
    if Command::new("ibv_devinfo").arg("--version").output().is_err() {
        eprintln!("**** SKIPPED: no ibv_devinfo: apt-get install ibverbs-utils");
        return;
    }
    let runtime = scratch("same");
    for profile in ["default", "rxe", "connectx"] {
        let run = || {
            let mut command = pumice(&runtime);
            command.args(["--addr", "127.102.9.9", "--device", "soft_1", "--profile", profile, "--"]);
            command
        };
        let devinfo = printed(run().args(["ibv_devinfo", "-v"]));
        let file = |name: &str| {
            let text = printed(run().arg("cat").arg(format!("/sys/class/infiniband/soft_1/{name}")));
            text.strip_suffix('\n').expect("files end with a newline").to_owned()
        };
        for name in ["node_guid", "sys_image_guid"] {
            assert_eq!(said(&devinfo, name), Some(file(name).as_str()), "{profile} {name}");
        }
        // The program leaves out an empty version.
        assert_eq!(said(&devinfo, "fw_ver").unwrap_or_default(), file("fw_ver"), "{profile}");
        assert_eq!(said(&devinfo, "hw_ver").map(|hex| hex.trim_start_matches("0x").to_owned()), {
            let text = file("hw_rev");
            Some(if text == "0" { "0".to_owned() } else { text.to_uppercase() })
        });
        if let Some(board) = said(&devinfo, "board_id") {
            assert_eq!(board, file("board_id"), "{profile}");
        }
        assert_eq!(said(&devinfo, "state"), Some("PORT_ACTIVE (4)"));
        assert_eq!(file("ports/1/state"), "4: ACTIVE");
        let (_, cap) = devinfo.split_once("port_cap_flags:").expect("a line of -v");
        let cap = cap.split_whitespace().next().expect("a number").trim_start_matches("0x");
        assert_eq!(file("ports/1/cap_mask"), format!("0x{cap:0>8}"), "{profile}");
        assert_eq!(said(&devinfo, "link_layer"), Some(file("ports/1/link_layer").as_str()));
        let rate = match profile {
            "connectx" => ("4X (2)", "25.0 Gbps (32)", "100 Gb/sec (4X EDR)"),
            _ => ("1X (1)", "2.5 Gbps (1)", "2.5 Gb/sec (1X SDR)"),
        };
        let shown = (said(&devinfo, "active_width"), said(&devinfo, "active_speed"), file("ports/1/rate"));
        assert_eq!(shown, (Some(rate.0), Some(rate.1), rate.2.to_owned()), "{profile}");
        assert_eq!(file("ports/1/gids/0"), "0000:0000:0000:0000:0000:ffff:7f66:0909");
        assert!(devinfo.contains("::ffff:127.102.9.9, RoCE v2"), "{devinfo}");
        assert_eq!(file("ports/1/gid_attrs/types/0"), "RoCE v2");
        assert_eq!(file("ports/1/gid_attrs/ndevs/0"), "lo");
    }
    fs::remove_dir_all(&runtime).expect("a folder of ours");
}

#[test]
fn the_gid_table_is_that_of_pumice_devices() {
    let runtime = scratch("gids");
    let list = printed(Command::new(env!("CARGO_BIN_EXE_pumice")).args(["devices", "--json"]));
    let list: serde_json::Value = serde_json::from_str(&list).expect("it is JSON");
    let gids = list[0]["gids"].as_array().expect("a table");
    let script = "cd /sys/class/infiniband/pumice0/ports/1 && for n in $(ls gids | sort -n); do \
                  echo $n $(cat gids/$n) $(cat gid_attrs/ndevs/$n) $(cat gid_attrs/types/$n); done";
    let expected: String = gids
        .iter()
        .map(|gid| {
            let text = |name: &str| gid[name].as_str().expect("text").to_owned();
            format!("{} {} {} RoCE v2\n", gid["index"], text("gid"), text("interface"))
        })
        .collect();
    assert_eq!(printed(pumice(&runtime).args(["--", "sh", "-c", script])), expected);
    fs::remove_dir_all(&runtime).expect("a folder of ours");
}

#[test]
fn trees_are_made_once_and_kept_private() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let runtime = scratch("once");
    let names = || {
        let mut names: Vec<String> = fs::read_dir(runtime.join("pumice"))
            .expect("it was made")
            .map(|entry| entry.expect("it is listed").file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("sysfs-"))
            .collect();
        names.sort();
        names
    };
    let run = |address: &str| {
        printed(pumice(&runtime).args(["--addr", address, "--", "sh", "-c", "echo $PUMICE_SYSFS"]))
    };
    let shown = run("127.102.9.1");
    assert_eq!(run("127.102.9.1"), shown);
    assert_eq!(names().len(), 1);
    assert_ne!(run("127.102.9.2"), shown);
    assert_eq!(names().len(), 2);
    let folder = runtime.join("pumice");
    assert_eq!(fs::metadata(&folder).expect("it is there").mode() & 0o777, 0o700);
    // Many at once, on a tree that is not there.
    fs::remove_dir_all(shown.trim()).expect("a tree of ours");
    let mut children: Vec<_> = (0..8)
        .map(|_| {
            let mut command = pumice(&runtime);
            command.args([
                "--addr",
                "127.102.9.1",
                "--",
                "cat",
                "/sys/class/infiniband/pumice0/ports/1/state",
            ]);
            command.stdout(std::process::Stdio::piped()).spawn().expect("the program can be run")
        })
        .collect();
    while let Some(child) = children.pop() {
        let output = child.wait_with_output().expect("a child of ours");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "4: ACTIVE\n");
    }
    let left: Vec<_> = fs::read_dir(shown.trim()).expect("it is there").flatten().collect();
    assert_eq!(left.len(), 2, "sys and dev, and nothing left behind: {left:?}");
    // A folder that others may write is refused.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("a folder of ours");
    let output = pumice(&runtime).args(["--", "true"]).output().expect("the program can be run");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && text.contains("other users may access it"), "{text}");
    fs::remove_dir_all(&runtime).expect("a folder of ours");
}
