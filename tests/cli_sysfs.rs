//! `pumice run --sysfs`: what a program finds below /sys/class/infiniband is what libibverbs tells it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `pumice run --sysfs` with a runtime folder of the test's own.
fn pumice(runtime: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.args(["run", "--sysfs"]).env("XDG_RUNTIME_DIR", runtime);
    for variable in
        pumice_device::settings::VARIABLES.iter().copied().chain(["LD_LIBRARY_PATH", "LD_PRELOAD"])
    {
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
fn field_of<'a>(devinfo: &'a str, name: &str) -> Option<&'a str> {
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
            assert_eq!(field_of(&devinfo, name), Some(file(name).as_str()), "{profile} {name}");
        }
        // The program leaves out an empty version.
        assert_eq!(field_of(&devinfo, "fw_ver").unwrap_or_default(), file("fw_ver"), "{profile}");
        assert_eq!(field_of(&devinfo, "hw_ver").map(|hex| hex.trim_start_matches("0x").to_owned()), {
            let text = file("hw_rev");
            Some(if text == "0" { "0".to_owned() } else { text.to_uppercase() })
        });
        if let Some(board) = field_of(&devinfo, "board_id") {
            assert_eq!(board, file("board_id"), "{profile}");
        }
        assert_eq!(field_of(&devinfo, "state"), Some("PORT_ACTIVE (4)"));
        assert_eq!(file("ports/1/state"), "4: ACTIVE");
        let (_, cap) = devinfo.split_once("port_cap_flags:").expect("a line of -v");
        let cap = cap.split_whitespace().next().expect("a number").trim_start_matches("0x");
        assert_eq!(file("ports/1/cap_mask"), format!("0x{cap:0>8}"), "{profile}");
        assert_eq!(field_of(&devinfo, "link_layer"), Some(file("ports/1/link_layer").as_str()));
        let rate = match profile {
            "connectx" => ("4X (2)", "25.0 Gbps (32)", "100 Gb/sec (4X EDR)"),
            _ => ("1X (1)", "2.5 Gbps (1)", "2.5 Gb/sec (1X SDR)"),
        };
        let shown =
            (field_of(&devinfo, "active_width"), field_of(&devinfo, "active_speed"), file("ports/1/rate"));
        assert_eq!(shown, (Some(rate.0), Some(rate.1), rate.2.to_owned()), "{profile}");
        assert_eq!(file("ports/1/gids/0"), "0000:0000:0000:0000:0000:ffff:7f66:0909");
        assert!(devinfo.contains("::ffff:127.102.9.9, RoCE v2"), "{devinfo}");
        assert_eq!(file("ports/1/gid_attrs/types/0"), "RoCE v2");
        assert_eq!(file("ports/1/gid_attrs/ndevs/0"), "lo");
    }
    fs::remove_dir_all(&runtime).expect("a folder of ours");
}

#[test]
fn programs_are_shown_the_device_unless_nothing_is_to_be_loaded() {
    let runtime = scratch("default");
    let run = |options: &[&str], script: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.arg("run").args(["--addr", "127.102.9.7"]).args(options).args(["--", "sh", "-c", script]);
        for variable in
            pumice_device::settings::VARIABLES.iter().copied().chain(["LD_LIBRARY_PATH", "LD_PRELOAD"])
        {
            command.env_remove(variable);
        }
        command.env_remove("ASAN_OPTIONS").env("XDG_RUNTIME_DIR", &runtime);
        command.output().expect("the program can be run")
    };
    let list = "ls /sys/class/infiniband/pumice0/ports";
    for options in [&[][..], &["--sysfs"]] {
        let output = run(options, list);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n", "{options:?}");
    }
    assert!(!run(&["--no-preload"], list).status.success());
    let environment = run(&["--no-preload"], "env");
    let text = String::from_utf8_lossy(&environment.stdout).into_owned();
    assert!(!text.contains("LD_PRELOAD=") && text.contains("LD_LIBRARY_PATH="), "{text}");
    let other = run(&["--rsocket", "--no-preload"], "true");
    assert_eq!(other.status.code(), Some(2), "they contradict each other");
    // Where no tree can be made, the program runs without it; a user who asked for it with --sysfs is told
    // why.
    let folder = runtime.join("file");
    fs::write(&folder, "").expect("a folder of ours");
    let nowhere = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        command
            .arg("run")
            .args(["--addr", "127.102.9.7", "--log", "warn"])
            .args(options)
            .args(["--", "echo", "here"]);
        command
            .env("XDG_RUNTIME_DIR", &folder)
            .env("TMPDIR", &folder)
            .output()
            .expect("the program can be run")
    };
    assert_eq!(String::from_utf8_lossy(&nowhere(&[]).stdout), "here\n");
    fs::remove_dir_all(&runtime).expect("a folder of ours");
}

/// gcc's AddressSanitizer insists on being loaded first; other preloads keep their order.
#[test]
fn sanitized_programs_and_other_preloads_are_left_alone() {
    let runtime = scratch("sanitizer");
    let source = runtime.join("leak.c");
    fs::write(
        &source,
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
         int main(int n, char **v) { char *room = malloc(8); strcpy(room, v[1]); \
         FILE *f = fopen(\"/sys/class/infiniband/pumice0/node_type\", \"r\"); puts(f ? \"seen\" : \"not \
         seen\"); \
         if (f) fclose(f); free(room); return n - 2; }\n",
    )
    .expect("a folder of ours");
    let program = runtime.join("leak");
    let compiled =
        Command::new("gcc").args(["-fsanitize=address", "-g", "-o"]).arg(&program).arg(&source).output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        eprintln!("**** SKIPPED: no gcc with AddressSanitizer: apt-get install gcc libasan8");
        return;
    }
    let run = |argument: &str| {
        let mut command = pumice(&runtime);
        command.args(["--addr", "127.102.9.8", "--"]).arg(&program).arg(argument).env_remove("ASAN_OPTIONS");
        command.output().expect("the program can be run")
    };
    assert_eq!(
        printed(pumice(&runtime).args(["--addr", "127.102.9.8", "--"]).arg(&program).arg("short")),
        "seen\n"
    );
    let found = String::from_utf8_lossy(&run("much too long").stderr).into_owned();
    assert!(found.contains("heap-buffer-overflow") && found.contains("leak.c"), "{found}");
    let preloads = printed(
        pumice(&runtime)
            .args(["--addr", "127.102.9.8", "--", "sh", "-c", "echo $LD_PRELOAD"])
            .env("LD_PRELOAD", "libpthread.so.0 libm.so.6"),
    );
    assert!(preloads.trim_end().ends_with("libpumice_sysfs.so:libpthread.so.0:libm.so.6"), "{preloads}");
    fs::remove_dir_all(&runtime).expect("a folder of ours");
}

/// A ping-pong of a server and a client on this address; false if there is no such program.
fn ping_pong(runtime: &Path, address: &str) -> bool {
    if Command::new("ibv_rc_pingpong").arg("--version").output().is_err() {
        eprintln!("**** SKIPPED: no ibv_rc_pingpong: apt-get install ibverbs-utils");
        return false;
    }
    let last_number: u32 = address.rsplit('.').next().and_then(|last| last.parse().ok()).expect("an address");
    let port = (20000 + (std::process::id() * 10 + last_number) % 12000).to_string();
    let words = ["ibv_rc_pingpong", "-d", "pumice0", "-g", "0", "-n", "100", "-p", &port];
    let run = |host: Option<&str>| {
        let mut command = pumice(runtime);
        command.args(["--addr", address, "--", "timeout", "120"]).args(words).args(host);
        command
    };
    let mut server = run(None).stdout(std::process::Stdio::null()).spawn().expect("the program can be run");
    // It tries again until the server listens.
    let client = || run(Some("127.0.0.1")).output().is_ok_and(|output| output.status.success());
    let end = std::time::Instant::now() + std::time::Duration::from_secs(100);
    while !client() {
        assert!(std::time::Instant::now() < end, "no ping-pong");
    }
    assert!(server.wait().expect("a child of ours").success());
    true
}

/// The counters are those of all processes of the user, those that have gone included.
#[test]
fn counters_move() {
    let runtime = scratch("counters");
    let folder = "/sys/class/infiniband/pumice0/ports/1";
    let read = |script: &str| -> Vec<u64> {
        let text = printed(pumice(&runtime).args(["--addr", "127.102.9.3", "--", "sh", "-c", script]));
        text.lines().map(|line| line.parse().expect("a number")).collect()
    };
    let absolute = format!("cd / && cat {folder}/counters/port_xmit_data {folder}/hw_counters/rcvd_pkts");
    let before = read(&absolute);
    assert_eq!(before, [0, 0]);
    if !ping_pong(&runtime, "127.102.9.3") {
        return;
    }
    let after = read(&absolute);
    // 100 messages of 4096 bytes each way, in words of 4 bytes; on a busy machine some are sent again.
    let payload = 2 * 100 * 1024;
    assert!(after[0] >= payload && after[1] >= 200, "{after:?}");
    assert_eq!(read(&format!("cd {folder}/counters && cat port_xmit_data ../hw_counters/rcvd_pkts")), after);
    assert_eq!(
        read(&format!("cd {folder} && while read n; do echo $n; done < counters/port_xmit_data")),
        [after[0]]
    );
    // A packet that is sent again may come to a process that has ended since.
    let sent = read(&format!("awk '{{ print }}' {folder}/hw_counters/sent_pkts"));
    let again = read(&format!("awk '{{ print }}' {folder}/hw_counters/local_ack_timeout_err"));
    assert!((after[1]..=after[1] + 16 * again[0]).contains(&sent[0]), "{sent:?} {after:?} {again:?}");
    assert!(ping_pong(&runtime, "127.102.9.3"));
    let both = read(&absolute);
    assert!(
        both[0] >= after[0] + payload,
        "the counters of a process index go on where its last process stopped: {after:?} {both:?}"
    );
    fs::remove_dir_all(&runtime).expect("a folder of ours");
}

#[test]
fn questions_through_netlink_are_answered() {
    let runtime = scratch("netlink");
    let run = |words: &[&str]| {
        let mut command = pumice(&runtime);
        command.args(["--addr", "127.102.9.4", "--device", "soft_1", "--"]).args(words);
        command
    };
    // The way of pyverbs' tests and of monitors: a raw socket.
    let script = "import os, socket, struct\n\
        s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 20)\n\
        s.bind((0, 0))\n\
        s.send(struct.pack('=IHHII', 16, 5 << 10 | 1, 0x301, 9, 0))\n\
        data, source = s.recvfrom(65536)\n\
        assert source[0] == s.getsockname()[0] and b'soft_1' in data, data\n\
        length, kind, flags, sequence, port = struct.unpack('=IHHII', data[:16])\n\
        assert (kind, flags, sequence, port) == (5 << 10 | 1, 2, 9, s.getsockname()[0])\n\
        assert struct.unpack('=H', data[length + 4:length + 6]) == (3,)\n\
        s.sendmsg([struct.pack('=IHHII', 16, 5 << 10 | 2, 5, 10, 0)])\n\
        assert struct.unpack('=i', s.recv(65536)[16:20]) == (-95,)\n\
        other = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2)\n\
        try: other.sendto(data, (s.getsockname()[0], 0)); print('forged')\n\
        except ConnectionRefusedError: print('refused')\n\
        s.close()\n\
        a, b = socket.socketpair(); a.send(b'x'); print(b.recv(9))\n";
    assert_eq!(printed(&mut run(&["python3", "-c", script])), "refused\nb'x'\n");
    if Command::new("rdma").arg("-V").output().is_err() {
        eprintln!("**** SKIPPED: no rdma: apt-get install iproute2");
        return;
    }
    let link = printed(&mut run(&["rdma", "link", "show", "-j"]));
    let link: serde_json::Value = serde_json::from_str(&link).expect("it is JSON");
    let (name, state) = (&link[0]["ifname"], &link[0]["state"]);
    assert_eq!(
        (name.as_str(), state.as_str(), link[0]["netdev"].as_str()),
        (Some("soft_1"), Some("ACTIVE"), Some("lo"))
    );
    let device = printed(&mut run(&["rdma", "dev", "show", "soft_1"]));
    assert!(device.starts_with("0: soft_1: node_type ca"), "{device}");
    let guid = printed(&mut run(&["cat", "/sys/class/infiniband/soft_1/node_guid"]));
    assert!(device.contains(&format!("node_guid {}", guid.trim_end())), "{device} {guid}");
    let statistics = printed(&mut run(&["rdma", "statistic", "show", "link", "soft_1/1"]));
    assert!(statistics.starts_with("link soft_1/1 sent_pkts 0 rcvd_pkts 0"), "{statistics}");
    let of_links = "link_queued 0 link_dropped 0 link_marked 0 link_busy 0";
    let words = statistics.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.ends_with(of_links), "{statistics}");
    if ping_pong(&runtime, "127.102.9.4") {
        let statistics = printed(&mut run(&["rdma", "statistic", "show", "-j"]));
        let statistics: serde_json::Value = serde_json::from_str(&statistics).expect("it is JSON");
        assert!(statistics[0]["sent_pkts"].as_u64() >= Some(200), "{statistics}");
    }
    assert_eq!(printed(&mut run(&["rdma", "resource", "show", "qp"])), "");
    assert!(!run(&["rdma", "link", "show", "other/1"]).output().expect("it runs").status.success());
    let script = "import ctypes, subprocess\n\
        verbs = ctypes.CDLL('libibverbs.so.1')\n\
        for name in ['get_device_list', 'open_device', 'alloc_pd', 'create_cq']:\n\
        \x20   getattr(verbs, 'ibv_' + name).restype = ctypes.c_void_p\n\
        device = ctypes.c_void_p.from_address(verbs.ibv_get_device_list(None)).value\n\
        context = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(device)))\n\
        pds = [ctypes.c_void_p(verbs.ibv_alloc_pd(context)) for _ in range(3)]\n\
        assert verbs.ibv_create_cq(context, 8, None, None, 0)\n\
        assert verbs.ibv_dealloc_pd(pds[0]) == 0\n\
        subprocess.run(['rdma', 'resource'], check=True)\n";
    // Those of processes that live.
    assert_eq!(printed(&mut run(&["python3", "-c", script])), "0: soft_1: pd 2 cq 1 qp 0 cm_id 0 mr 0 \n");
    assert_eq!(printed(&mut run(&["rdma", "resource"])), "0: soft_1: pd 0 cq 0 qp 0 cm_id 0 mr 0 \n");
    // What scripts for rdma_rxe begin and end with.
    for words in [&["add", "soft_1", "type", "rxe", "netdev", "lo"][..], &["delete", "soft_1"]] {
        assert_eq!(printed(run(&["rdma", "link"]).args(words)), "");
    }
    let other =
        run(&["rdma", "link", "add", "rxe7", "type", "rxe", "netdev", "lo"]).output().expect("it runs");
    let field_of = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && field_of.contains("\"pumice run --device rxe7\"\n"), "{field_of}");
    fs::remove_dir_all(&runtime).expect("a folder of ours");
}

#[test]
fn the_gid_table_is_that_of_pumice_devices() {
    let runtime = scratch("gids");
    let list = printed(Command::new(env!("CARGO_BIN_EXE_pumice")).args(["devices", "--json"]));
    let list: serde_json::Value = serde_json::from_str(&list).expect("it is JSON");
    let gids = list[0]["gids"].as_array().expect("a table");
    let script = "cd /sys/class/infiniband/pumice0/ports/1 && for n in $(ls gids | sort -n); do \
                  cat gid_attrs/types/$n >/dev/null 2>&1 || continue; \
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
    assert_eq!(left.len(), 4, "sys, dev, live and netlink, and nothing left behind: {left:?}");
    // A folder that others may write is passed over.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("a folder of ours");
    let before = names();
    let elsewhere = run("127.102.9.3");
    assert!(
        !elsewhere.trim().is_empty() && !elsewhere.starts_with(&*folder.to_string_lossy()),
        "{elsewhere}"
    );
    assert_eq!(names(), before);
    fs::remove_dir_all(elsewhere.trim()).expect("a tree of ours");
    fs::remove_dir_all(&runtime).expect("a folder of ours");
}
