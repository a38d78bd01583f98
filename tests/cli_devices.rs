//! Several devices of one program: `pumice run --devices N`, and profiles with devices.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// A new folder.
fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (own, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("devices-{name}-{own}-{number}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

/// `pumice` in a runtime folder of the test's own, without settings.
fn pumice(runtime: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    for variable in
        pumice_device::settings::VARIABLES.iter().copied().chain(["LD_LIBRARY_PATH", "LD_PRELOAD"])
    {
        command.env_remove(variable);
    }
    command.args(words).env("XDG_RUNTIME_DIR", runtime);
    command
}

fn printed(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{error}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn is_installed(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let there = found.is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("**** SKIPPED: {program} is not installed");
    }
    there
}

/// So many addresses that no other test uses, with commas between them.
fn addresses(count: usize) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (own, third) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let base = format!("127.{}.{}", 64 + (own >> 8 & 0x1f), own & 0xff);
    (1..=count).map(|last| format!("{base}.{}", third * 16 + last as u32)).collect::<Vec<_>>().join(",")
}

/// Compiles `tests/devices/<name>.c`; none if there is no compiler or no library.
fn compile(name: &str, folder: &Path) -> Option<PathBuf> {
    compile_with(name, folder, &[])
}

fn compile_with(name: &str, folder: &Path, flags: &[&str]) -> Option<PathBuf> {
    let is_there = Path::new("/usr/include/rdma/rdma_cma.h").exists();
    if !is_there || Command::new("cc").arg("--version").output().is_err() {
        eprintln!("**** SKIPPED: apt-get install gcc libibverbs-dev librdmacm-dev");
        return None;
    }
    let program = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/devices/{name}.c"));
    let usual = ["-std=gnu11", "-Wall", "-Werror", "-O1", "-pthread", "-o"];
    let mut command = Command::new("cc");
    command.args(usual).arg(&program).args(flags).arg(source).args(["-lrdmacm", "-libverbs"]);
    let output = command.output().expect("cc runs");
    assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

#[test]
fn a_program_uses_all_its_devices_on_both_media() {
    let folder = scratch("all");
    let Some(program) = compile("several", &folder) else { return };
    for wire in ["udp", "auto"] {
        let own = addresses(3);
        let words = ["run", "--devices", "3", "--addr", &own, "--wire", wire, "--"];
        let output = pumice(&folder, &words).arg(&program).output().expect("the program can be run");
        assert_eq!(printed(&output), "all devices work\n", "{wire}");
    }
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn each_device_has_counters_a_capture_and_a_trace_of_its_own() {
    let folder = scratch("files");
    let Some(program) = compile("several", &folder) else { return };
    let own = addresses(3);
    let (capture, trace) = (folder.join("packets.pcapng"), folder.join("run.trace"));
    let named = [capture.to_str(), trace.to_str()].map(|name| name.expect("a name that is UTF-8"));
    let words = ["run", "--devices", "3", "--addr", &own, "--capture", named[0], "--trace", named[1], "--"];
    printed(&pumice(&folder, &words).arg(&program).output().expect("the program can be run"));
    for device in ["", "-pumice1", "-pumice2"] {
        for file in [format!("packets{device}.pcapng"), format!("run{device}.trace")] {
            let length = fs::metadata(folder.join(&file)).expect(&file).len();
            assert!(length > 1000, "{file} has {length} bytes");
        }
    }
    // Each device has sent the WRITEs of its queue pairs, and what another one sent is not counted here.
    let counter = "cat /sys/class/infiniband/pumice*/ports/1/counters/port_xmit_packets";
    let again = ["run", "--devices", "3", "--addr", &own, "--sysfs", "--", "sh", "-c", counter];
    let sent: Vec<u64> = printed(&pumice(&folder, &again).output().expect("the shell can be run"))
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(sent.len(), 3);
    assert!(sent.iter().all(|sent| *sent > 200), "{sent:?}");
    if is_installed("rdma") {
        let words = ["run", "--devices", "3", "--addr", &own, "--sysfs", "--", "rdma", "statistic", "show"];
        let text = printed(&pumice(&folder, &words).output().expect("rdma can be run"));
        let of_netlink: Vec<u64> = text
            .lines()
            .filter_map(|line| line.split_once("sent_pkts ")?.1.split_whitespace().next()?.parse().ok())
            .collect();
        assert_eq!(of_netlink, sent, "{text}");
    }
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn verbs_sysfs_netlink_and_the_command_line_list_the_same_devices() {
    if !is_installed("ibv_devinfo") || !is_installed("rdma") {
        return;
    }
    let folder = scratch("same");
    let profile = folder.join("rails.toml");
    let text = "vendor_id = 0x02c9\npart_id = 4129\n[port]\nspeed = \"ndr\"\nwidth = 4\n\
        [[device]]\nname = \"mlx5_0\"\naddress = \"127.70.1.1\"\nnuma_node = 0\n\
        pci_address = \"0000:18:00.0\"\n\
        [[device]]\nname = \"mlx5_3\"\naddress = \"127.70.1.2\"\nnuma_node = 1\n\
        node_guid = \"0c42:a103:0065:1a90\"\n\
        [[device]]\nname = \"slow_0\"\naddress = \"127.70.1.3\"\nspeed = \"edr\"\nwidth = 1\n";
    fs::write(&profile, text).expect("the folder is ours");
    let profile = profile.to_str().expect("a name that is UTF-8");
    let run = |words: &[&str]| {
        let words = [&["run", "--sysfs", "--profile", profile, "--"], words].concat();
        printed(&pumice(&folder, &words).output().expect("the program can be run"))
    };
    let listed = pumice(&folder, &["devices", "--json"]).env("PUMICE_PROFILE", profile).output();
    let listed: Value = serde_json::from_str(&printed(&listed.expect("pumice runs"))).expect("JSON");
    let names = ["mlx5_0", "mlx5_3", "slow_0"];
    let links = run(&["rdma", "link"]);
    let classes = run(&["ls", "/sys/class/infiniband"]);
    assert_eq!(classes.split_whitespace().collect::<Vec<_>>(), names);
    for (index, name) in names.iter().enumerate() {
        let devinfo = run(&["ibv_devinfo", "-v", "-d", name]);
        let file =
            |file: &str| run(&["cat", &format!("/sys/class/infiniband/{name}/{file}")]).trim_end().to_owned();
        let guid = file("node_guid");
        assert!(devinfo.contains(&format!("node_guid:\t\t\t{guid}\n")), "{devinfo}");
        assert_eq!(listed[index]["name"], *name);
        assert_eq!(listed[index]["node_guid"], guid.replace(':', ""));
        let address = format!("127.70.1.{}", index + 1);
        assert_eq!(listed[index]["gids"][0]["address"], address.as_str());
        assert_eq!(listed[index]["gids"].as_array().map(Vec::len), Some(1));
        assert!(devinfo.contains(&format!("::ffff:{address}, RoCE v2")), "{devinfo}");
        assert!(links.contains(&format!("link {name}/1 state ACTIVE")), "{links}");
        let rate = if *name == "slow_0" { "25 Gb/sec (1X EDR)" } else { "400 Gb/sec (4X NDR)" };
        assert_eq!(file("ports/1/rate"), rate);
        let uverbs = format!("/sys/class/infiniband_verbs/uverbs{index}/ibdev");
        assert_eq!(run(&["cat", &uverbs]).trim_end(), *name);
        assert_eq!(file("device/numa_node"), ["0", "1", "-1"][index]);
    }
    // As scripts that ask which interface belongs to which device do it, both ways, and as `rdma link` says.
    let forward = "for d in /sys/class/infiniband/*; do for n in $d/device/net/*; do \
                   echo ${d##*/} ${n##*/} $(cat $d/ports/1/gid_attrs/ndevs/0); done; done";
    let pairs = names.map(|name| format!("{name} lo lo\n")).concat();
    assert_eq!(run(&["sh", "-c", forward]), pairs);
    let back = "cd /sys/class/net && for n in *; do for d in /sys/class/net/$n/device/infiniband/*; do \
                test -e $d/node_guid && echo ${d##*/} $n; done; done; true";
    let pairs = names.map(|name| format!("{name} lo\n")).concat();
    assert_eq!(run(&["sh", "-c", back]), pairs);
    assert_eq!(links.matches("netdev lo").count(), 3, "{links}");
    let path = run(&["readlink", "-f", "/sys/class/infiniband/mlx5_0/device"]);
    assert_eq!(path, "/sys/devices/virtual/infiniband_pci/pci0000:18/0000:18:00.0\n");
    assert_eq!(run(&["cat", "/sys/class/infiniband/mlx5_0/device/infiniband/mlx5_0/node_type"]), "1: CA\n");
    assert_eq!(run(&["cat", "/sys/class/infiniband/mlx5_3/node_guid"]), "0c42:a103:0065:1a90\n");
    assert_eq!(run(&["cat", "/sys/class/infiniband/mlx5_0/device/uevent"]), "PCI_SLOT_NAME=0000:18:00.0\n");
    let eight = pumice(&folder, &["run", "--profile", "dgx-h100", "--", "ibv_devices"]).output();
    let eight = printed(&eight.expect("ibv_devices runs"));
    assert_eq!(eight.matches("mlx5_").count(), 8, "{eight}");
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn devices_that_cannot_be_are_refused_in_one_sentence() {
    let folder = scratch("refused");
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, text).expect("the folder is ours");
        file.to_str().expect("a name that is UTF-8").to_owned()
    };
    let twice =
        write("twice.toml", "[[device]]\naddress = \"127.0.0.3\"\n[[device]]\naddress = \"127.0.0.3\"\n");
    let names = write("names.toml", "[[device]]\nname = \"x\"\n\n[[device]]\nname = \"x\"\n");
    let gone = write("gone.toml", "[[device]]\ninterface = \"ib9\"\n");
    let typo = write("typo.toml", "vendor_id = 1\n[[device]]\nadress = \"127.0.0.3\"\n");
    let ports = write("ports.toml", "[[device]]\n[[device.port]]\n[[device.port]]\n[[device.port]]\n");
    let alike =
        "[[device]]\n[[device.port]]\naddress = \"127.0.0.3\"\n[[device.port]]\naddress = \"127.0.0.3\"\n";
    let alike = write("alike.toml", alike);
    let slip = write("slip.toml", "[[device]]\n[[device.port]]\nadress = \"127.0.0.3\"\n");
    for (words, sentence) in [
        (&["--profile", &ports][..], "device 1: it has 3 ports, and a device has one or two"),
        (&["--profile", &alike], "both ports of pumice0 have the address 127.0.0.3"),
        (&["--profile", &slip], "line 3: unknown field `adress`"),
        (&["--profile", "two-port", "--addr", "127.0.0.1"], "1 addresses for 2 ports"),
        (&["--devices", "17"], "--devices 17: a process has 1 to 16 devices"),
        (&["--devices", "3", "--addr", "127.0.0.1,127.0.0.2"], "2 addresses for 3 devices"),
        (&["--devices", "2", "--addr", "127.0.0.1,192.0.2.77"], "it is no address of this host"),
        (&["--devices", "2", "--device", "a b"], "a device is named with at most 59"),
        (&["--profile", &twice], "pumice0 and pumice1 have the address 127.0.0.3"),
        (&["--profile", &names], "two devices have the name x"),
        (&["--profile", &gone], "the network interface ib9 is not there"),
        (&["--profile", &typo], "line 3: unknown field `adress`"),
        (
            &["--profile", "dgx-h100", "--devices", "9"],
            "it describes 8 devices, and PUMICE_DEVICES asks for 9",
        ),
    ] {
        let output = pumice(&folder, &[&["run"], words, &["--", "true"]].concat()).output();
        let output = output.expect("pumice runs");
        let output_text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{words:?}");
        assert!(
            output_text.contains(sentence) && output_text.trim_end().lines().count() == 1,
            "{words:?}: {output_text}"
        );
    }
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn a_rail_is_cut_and_the_other_one_works_on_on_both_media() {
    let folder = scratch("failover");
    let Some(program) = compile("failover", &folder) else { return };
    for wire in ["udp", "auto"] {
        let (own, cut) = (addresses(2), "event kind=unplug device=pumice1 qp=0 message=5");
        let words = ["run", "--devices", "2", "--addr", &own, "--wire", wire, "--fault", cut, "--"];
        let output = pumice(&folder, &words).arg(&program).output().expect("the program can be run");
        assert_eq!(printed(&output), "the other rail went on\n", "{wire}");
    }
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn a_call_reaches_its_device_and_reports_name_it() {
    let folder = scratch("calls");
    let Some(program) = compile("refused", &folder) else { return };
    let (report, trace) = (folder.join("faults.jsonl"), folder.join("run.trace"));
    let named = [report.to_str(), trace.to_str()].map(|name| name.expect("a name that is UTF-8"));
    let own = addresses(2);
    let words = ["run", "--devices", "2", "--addr", &own, "--fault-report", named[0], "--trace", named[1]];
    let plan = ["--fault", "fail name=no-memory call=ibv_reg_mr nth=1..3+2", "--"];
    let output = pumice(&folder, &[&words[..], &plan].concat()).arg(&program).output();
    let output = output.expect("the program can be run");
    let output_text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(printed(&output), "refused\n");
    let sentence = "pumice: pumice1: fault \"no-memory\" fails ibv_reg_mr with ENOMEM (call 3 of this name)";
    assert!(output_text.contains(sentence), "{output_text}");
    let lines = fs::read_to_string(&report).expect("a report");
    let calls_in: Vec<(String, u64)> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .filter(|line| line["call"] == "ibv_reg_mr")
        .map(|line| {
            (line["device"].as_str().unwrap_or_default().to_owned(), line["nth"].as_u64().unwrap_or(0))
        })
        .collect();
    assert_eq!(calls_in, [("pumice0".to_owned(), 1), ("pumice1".to_owned(), 3)], "{lines}");
    // Its trace has what happened to the calls of a device, and no other trace has it.
    let calls_in = |file: &str, call: &str| {
        let bytes = fs::read(folder.join(file)).expect("a trace");
        bytes.windows(call.len()).filter(|window| *window == call.as_bytes()).count() > 0
    };
    assert!(calls_in("run.trace", "ibv_create_cq") && !calls_in("run-pumice1.trace", "ibv_create_cq"));
    assert!(calls_in("run.trace", "ibv_reg_mr") && calls_in("run-pumice1.trace", "ibv_reg_mr"));
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn a_check_knows_the_objects_of_each_device() {
    let folder = scratch("check");
    let Some(program) = compile("careless", &folder) else { return };
    let report = folder.join("found.json");
    let own = addresses(2);
    let file = report.to_str().expect("a name that is UTF-8");
    let words = ["check", "--devices", "2", "--addr", &own, "--check-report", file, "--"];
    let output = pumice(&folder, &words).arg(&program).output().expect("the program can be run");
    let document: Value =
        serde_json::from_str(&fs::read_to_string(&report).expect("a report")).expect("JSON");
    let found = document["findings"].as_array().expect("findings are a list");
    assert!(!found.is_empty(), "{output:?}");
    let is_of_a_device = |one: &Value| one["object"].as_str().is_some_and(|name| name.contains(" of pumice"));
    let is_of_second = |one: &Value| one["object"].as_str().is_some_and(|name| name.contains(" of pumice1"));
    assert!(found.iter().all(is_of_second), "{document}");
    let never = found.iter().find(|one| one["kind"] == "completions-never-polled").expect("it polls none");
    assert_eq!(never["object"], "completion queue 0 of pumice1");
    let fixed = compile_with("careless", &folder, &["-DFIXED"]).expect("it was compiled before");
    let words = ["check", "--devices", "2", "--addr", &own, "--"];
    let output = pumice(&folder, &words).arg(&fixed).output().expect("the program can be run");
    let output_text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && output_text.contains("nothing was found"), "{output_text}");
    // It leaves objects, and gives a queue pair the completion queue of another device, which is refused.
    let several = compile("several", &folder).expect("there is a compiler");
    let own = addresses(3);
    let words = ["check", "--devices", "3", "--addr", &own, "--check-report", file, "--"];
    printed(&pumice(&folder, &words).arg(&several).output().expect("the program can be run"));
    let document: Value =
        serde_json::from_str(&fs::read_to_string(&report).expect("a report")).expect("JSON");
    let found = document["findings"].as_array().expect("findings are a list");
    let (of_another, left): (Vec<_>, Vec<_>) =
        found.iter().partition(|one| one["kind"] == "object-of-other-context");
    assert_eq!(of_another.iter().map(|one| &one["count"]).collect::<Vec<_>>(), [1], "{document}");
    assert!(left.iter().all(|one| one["kind"] == "objects-left" && is_of_a_device(one)), "{document}");
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn the_profile_laptop_is_two_devices_with_links_on_the_loopback_interface() {
    if !is_installed("ibv_devinfo") {
        return;
    }
    let folder = scratch("laptop");
    let listed = pumice(&folder, &["devices", "--json"]).env("PUMICE_PROFILE", "laptop").output();
    let listed: Value = serde_json::from_str(&printed(&listed.expect("pumice runs"))).expect("JSON");
    for (index, address) in ["127.0.0.1", "127.0.0.2"].into_iter().enumerate() {
        assert_eq!(listed[index]["name"], format!("pumice{index}"));
        assert_eq!(listed[index]["gids"][0]["address"], address);
    }
    let rate = "cat /sys/class/infiniband/pumice1/ports/1/rate";
    let words = ["run", "--profile", "laptop", "--sysfs", "--", "sh", "-c", rate];
    assert_eq!(printed(&pumice(&folder, &words).output().expect("a shell")), "10 Gb/sec (1X QDR)\n");
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

/// More devices than the top byte of a queue pair number can tell apart, on sixteen addresses of one host.
#[test]
fn twenty_processes_with_sixteen_devices_each_talk_to_each_other() {
    const PROCESSES: usize = 20;
    let folder = scratch("crowd");
    let Some(program) = compile("crowd", &folder) else { return };
    let own = addresses(16);
    let words = ["run", "--devices", "16", "--addr", &own, "--log", "warn", "--"];
    let begin = |number: usize| {
        let mut command = pumice(&folder, &words);
        command.arg(&program).arg(number.to_string()).arg(&folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().expect("the program can be run")
    };
    let mut crowd: Vec<Child> = (0..PROCESSES).map(begin).collect();
    let mut output_text: Vec<_> = crowd
        .iter_mut()
        .map(|child| BufReader::new(child.stdout.take().expect("it is piped")).lines())
        .collect();
    let mut line = |number: usize| {
        let line =
            output_text.get_mut(number).and_then(Iterator::next).expect("a process that has not ended");
        line.expect("text")
    };
    let mut all = String::new();
    for number in 0..PROCESSES {
        assert_eq!(line(number), "opened 16");
        all = all + &line(number) + "\n";
    }
    fs::write(folder.join("all"), all).expect("the folder is ours");
    for child in &mut crowd {
        child.stdin.as_mut().expect("it is piped").write_all(b"!").expect("it reads");
    }
    for number in 0..PROCESSES {
        assert_eq!(line(number), "exchanged");
    }
    let stat = printed(&pumice(&folder, &["stat", "--json"]).output().expect("stat can be run"));
    let found: Value = serde_json::from_str(&stat).expect("JSON");
    let devices: HashSet<(u64, &str)> = found
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| (one["process_index"].as_u64().expect("a number"), one["address"].as_str().expect("text")))
        // Other programs of this user are listed, too.
        .filter(|(_, address)| own.split(',').any(|one| one == *address))
        .collect();
    assert_eq!(devices.len(), 16 * PROCESSES);
    for mut child in crowd {
        drop(child.stdin.take());
        assert!(child.wait().expect("a child of ours").success());
    }
    fs::remove_dir_all(&folder).expect("a folder of ours");
}
