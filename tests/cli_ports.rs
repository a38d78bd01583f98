//! Devices with two ports: `pumice run --profile two-port`, and profiles with `[[device.port]]`.
//!
//! Such a device listens on all addresses of its host, so each test has a network namespace of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// What a shell does first in a network namespace of its own.
const BEGIN: &str = "ip link set lo up && set -e\n";

/// A sandbox of a test's own: a folder, and the way into a network namespace.
struct Sandbox(PathBuf);

impl Sandbox {
    /// None, with a word about it: there are no network namespaces here, or a program is missing.
    fn new(name: &str, programs: &[&str]) -> Option<Sandbox> {
        let own = format!("ports-{name}-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(own);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the target folder is writable");
        let sandbox = Sandbox(folder);
        let found = programs.iter().map(|program| format!("command -v {program}")).collect::<Vec<_>>();
        let all = [&["true".to_owned()], &found[..]].concat().join(" && ");
        if sandbox.shell(&all).status.success() {
            return Some(sandbox);
        }
        eprintln!("**** SKIPPED: unshare --net and {} are needed", programs.join(", "));
        None
    }

    /// Runs lines of a shell in a new network namespace, with `pumice` in the path, without settings.
    fn shell(&self, lines: &str) -> Output {
        let mut command = Command::new("timeout");
        command.args(["300", "unshare", "--map-root-user", "--net", "sh", "-c", &format!("{BEGIN}{lines}")]);
        for variable in
            pumice_device::settings::VARIABLES.iter().copied().chain(["LD_LIBRARY_PATH", "LD_PRELOAD"])
        {
            command.env_remove(variable);
        }
        let own = Path::new(env!("CARGO_BIN_EXE_pumice")).parent().expect("a folder").display();
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{own}:{path}")).env("XDG_RUNTIME_DIR", &self.0).current_dir(&self.0);
        command.output().expect("timeout(1) is part of coreutils")
    }

    /// What the lines print.
    fn printed(&self, lines: &str) -> String {
        let output = self.shell(lines);
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{lines}: {}\n{out}\n{error}", output.status);
        out.into_owned()
    }

    /// Compiles `tests/devices/ports.c`; false if there is no compiler or no library.
    fn compile(&self) -> bool {
        let has_headers = Path::new("/usr/include/rdma/rdma_cma.h").exists();
        if !has_headers || Command::new("cc").arg("--version").output().is_err() {
            eprintln!("**** SKIPPED: apt-get install gcc libibverbs-dev librdmacm-dev");
            return false;
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/devices/ports.c");
        let usual = ["-std=gnu11", "-Wall", "-Werror", "-O1", "-pthread", "-o"];
        let mut command = Command::new("cc");
        command.args(usual).arg(self.0.join("ports")).arg(source).args(["-lrdmacm", "-libverbs"]);
        let output = command.output().expect("cc runs");
        assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
        true
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_program_uses_both_ports_of_a_device_on_both_media() {
    let Some(sandbox) = Sandbox::new("both", &["cc"]) else { return };
    if !sandbox.compile() {
        return;
    }
    for wire in ["udp", "auto"] {
        let run = format!("pumice run --profile two-port --wire {wire}");
        assert_eq!(sandbox.printed(&format!("{run} -- ./ports")), "both ports work\n", "{wire}");
        let cut = "--fault 'event kind=port-down port=2 qp=0 message=0'";
        assert_eq!(sandbox.printed(&format!("{run} {cut} -- ./ports down")), "port 2 is down\n", "{wire}");
    }
}

#[test]
fn each_port_has_its_own_files_counters_and_answers() {
    let Some(sandbox) = Sandbox::new("files", &["ibv_devinfo", "rdma"]) else { return };
    let text = "[[device]]\nname = \"mlx4_0\"\n\
                [[device.port]]\naddress = \"127.0.0.1\"\nspeed = \"edr\"\nwidth = 4\n\
                [[device.port]]\naddress = \"127.0.0.6\"\nspeed = \"qdr\"\nmax_mtu = 2048\n";
    fs::write(sandbox.0.join("ports.toml"), text).expect("the folder is ours");
    let run = |words: &str| sandbox.printed(&format!("pumice run --sysfs --profile ports.toml -- {words}"));
    let listed = sandbox.printed("PUMICE_PROFILE=ports.toml pumice devices --json");
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
    let devinfo = run("ibv_devinfo -v");
    assert!(devinfo.contains("phys_port_cnt:\t\t\t2\n"), "{devinfo}");
    let (_, ports) = devinfo.split_once("port:\t1\n").expect(&devinfo);
    let (first, second) = ports.split_once("port:\t2\n").expect(&devinfo);
    let links = run("rdma link");
    let expected = [
        (1, first, "127.0.0.1", "active_mtu:\t\t4096 (5)", "100 Gb/sec (4X EDR)\n"),
        (2, second, "127.0.0.6", "active_mtu:\t\t2048 (4)", "10 Gb/sec (1X QDR)\n"),
    ];
    for (number, text, address, active_mtu, rate) in expected {
        assert!(
            text.contains(&format!("::ffff:{address}, RoCE v2")) && text.contains(active_mtu),
            "{devinfo}"
        );
        assert_eq!(text.matches("RoCE v2").count(), 1, "{devinfo}");
        let listed = &listed[number - 1];
        assert_eq!((&listed["name"], &listed["port"]), (&"mlx4_0".into(), &number.into()));
        assert_eq!(listed["gids"][0]["address"], address);
        assert!(links.contains(&format!("link mlx4_0/{number} state ACTIVE")), "{links}");
        let top = format!("/sys/class/infiniband/mlx4_0/ports/{number}");
        assert_eq!(run(&format!("cat {top}/rate")), rate);
        // The other indices have the GID of no address.
        let filled = run(&format!("grep -rhv ^{} {top}/gids", ["0000"; 8].join(":")));
        let last = address.rsplit('.').next().expect("an address");
        assert_eq!(filled, format!("0000:0000:0000:0000:0000:ffff:7f00:000{last}\n"));
    }
    if sandbox.compile() {
        // The counters are those of a network namespace: what one command sends, another one of its sees.
        let counters = "/sys/class/infiniband/mlx4_0/ports/*/counters/port_xmit_packets";
        let again = "pumice run --sysfs --profile ports.toml --";
        let text = sandbox.printed(&format!(
            "pumice run --profile ports.toml -- ./ports\n\
             {again} sh -c 'cat {counters}'\n{again} rdma statistic show\n"
        ));
        let mut lines = text.lines().skip(1);
        for number in 1..=2 {
            let sent: u64 = lines.next().and_then(|line| line.parse().ok()).expect(&text);
            // How many acknowledgements speak for several packets depends on time.
            assert!(sent > 0, "{text}");
            let netlink = text.lines().find(|line| line.contains(&format!("mlx4_0/{number} "))).expect(&text);
            assert!(netlink.contains(&format!("sent_pkts {sent} ")), "{text}");
        }
    }
}

#[test]
fn perftest_measures_on_the_second_port_and_on_both() {
    let Some(sandbox) = Sandbox::new("perftest", &["ib_write_bw", "grep"]) else { return };
    for (options, addresses) in [("-i 2", &["127:00:00:02"][..]), ("-O", &["127:00:00:01", "127:00:00:02"])] {
        let run = format!("pumice run --profile two-port -- ib_write_bw -n 200 -p 23401 {options}");
        // 0x5B69 is 23401, and state 0A is that of a listener.
        let text = sandbox.printed(&format!(
            "{run} > server 2>&1 & server=$!\n\
             until grep -q ':5B69 .* 0A ' /proc/net/tcp /proc/net/tcp6; do kill -0 $server; done\n\
             {run} 127.0.0.1\nwait $server\n"
        ));
        assert!(text.contains("BW average") && text.contains(" 65536 "), "{text}");
        for address in addresses {
            // Its own and the peer's.
            assert_eq!(text.matches(&format!("255:255:{address}")).count(), 2, "{text}");
        }
        let all = text.matches("255:255:127:").count();
        assert_eq!(all, 2 * addresses.len(), "{text}");
    }
}
