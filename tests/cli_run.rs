//! `pumice run` as users meet it: what the program gets, exit codes, and refusals.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn pumice() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.arg("run").env_remove("LD_LIBRARY_PATH");
    for variable in pumice_device::settings::VARIABLES {
        command.env_remove(variable);
    }
    command
}

fn run(arguments: &[&str]) -> Output {
    pumice().args(arguments).output().expect("the program can be run")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

#[test]
fn the_program_gets_the_library_and_the_settings() {
    let output = pumice()
        .args(["--addr", "127.101.0.9", "--device", "soft_1", "--loss", "1%", "--seed", "7", "--log", "warn"])
        .args(["--shuffle", "9"])
        .args(["--rate", "10Gbit", "--delay", "5us", "--jitter", "1us", "--queue", "1MiB", "--ecn", "64KiB"])
        .args(["--capture", "trace-%p.pcapng", "--", "env"])
        .env("LD_LIBRARY_PATH", "/some/where")
        .env("KEPT", "yes")
        .current_dir(scratch("settings"))
        .output()
        .expect("the program can be run");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = out(&output);
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    assert_eq!(value("PUMICE_ADDR"), Some("127.101.0.9"));
    assert_eq!(value("PUMICE_DEVICE"), Some("soft_1"));
    assert_eq!(value("PUMICE_LOSS"), Some("1%"));
    assert_eq!(value("PUMICE_SEED"), Some("7"));
    assert_eq!(value("PUMICE_SHUFFLE"), Some("9"));
    assert_eq!(value("PUMICE_LOG"), Some("warn"));
    let link = "rate=10Gbit,delay=5us,jitter=1us,queue=1MiB,ecn=64KiB";
    assert_eq!(value("PUMICE_LINK"), Some(link));
    assert_eq!(value("PUMICE_PROFILE"), None);
    assert_eq!(value("KEPT"), Some("yes"));
    let capture = value("PUMICE_CAPTURE").expect("a capture was asked for");
    assert!(capture.starts_with('/') && capture.ends_with("/trace-%p.pcapng"), "{capture}");
    let (folder, rest) = value("LD_LIBRARY_PATH").and_then(|path| path.split_once(':')).expect("two places");
    assert_eq!(rest, "/some/where");
    for name in ["libibverbs.so.1", "librdmacm.so.1", "libmlx5.so.1", "libefa.so.1", "libibverbs.so"] {
        let object = fs::canonicalize(Path::new(folder).join(name)).expect("a link to the library");
        assert!(object.ends_with("libpumice.so"), "{}", object.display());
    }
}

#[test]
fn the_program_takes_the_place_of_pumice() {
    let output = run(&["--", "sh", "-c", "echo $$; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    let mut command = pumice();
    command.args(["--", "sh", "-c", "echo $$"]).stdout(std::process::Stdio::piped());
    let child = command.spawn().expect("the program can be run");
    let pid = child.id().to_string();
    assert_eq!(out(&child.wait_with_output().expect("a child of ours")).trim(), pid);
    assert_eq!(run(&["--", "sh", "-c", "kill -TERM $$"]).status.signal(), Some(15));
    // Without "--", options behind the program are the program's.
    assert_eq!(out(&run(&["echo", "--addr", "-n"])).trim(), "--addr -n");
}

#[test]
fn a_program_that_cannot_be_run_is_named_with_the_exit_code_of_shells() {
    let folder = scratch("unfit");
    let file = |name: &str, text: &str, mode| {
        let path = folder.join(name);
        fs::write(&path, text).expect("a new file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a file of ours");
        path.display().to_string()
    };
    for (program, code, part) in [
        ("no-such-program".to_owned(), 127, "there is no program no-such-program: it is not in PATH"),
        (file("plain", "text", 0o644), 126, "may not be executed"),
        (file("lost", "#!/no/such/interpreter\n", 0o755), 127, "interpreter"),
        (folder.display().to_string(), 126, "is a folder"),
    ] {
        let output = run(&["--", &program]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let text = err(&output);
        assert!(text.starts_with("pumice: ") && text.contains(part) && text.lines().count() == 1, "{text}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn wrong_settings_are_refused_before_the_program_starts() {
    let folder = scratch("wrong");
    let in_folder = |name: &str| folder.join(name).display().to_string();
    let (deep, here) = (in_folder("none/a.pcapng"), folder.display().to_string());
    for (arguments, code, part) in [
        (["--addr", "localhost"], 2, "--addr localhost: it is not an IP address"),
        (["--addr", "192.0.2.77"], 1, "--addr 192.0.2.77: it is no address of this host"),
        (["--device", "a/b"], 2, "--device a/b: a device is named with"),
        (["--loss", "5"], 2, "--loss 5: it is more than 100 %; did you mean a percentage"),
        (["--seed", "x"], 2, "--seed x: a seed is a whole number"),
        (["--log", "loud"], 2, "--log loud: the levels are off, error, warn, info, debug"),
        (["--capture", deep.as_str()], 1, "there is no folder"),
        (["--capture", here.as_str()], 1, "it is a folder: name a file in it"),
        (["--capture", "/proc/pumice.pcapng"], 1, "may not be written"),
    ] {
        let output =
            pumice().args(arguments).args(["--", "echo", "started"]).output().expect("it can be run");
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        let text = err(&output);
        assert!(text.starts_with("pumice: ") && text.contains(part) && text.lines().count() == 1, "{text}");
    }
    // The same from the environment, under the variable's name.
    let output = pumice().env("PUMICE_LOSS", "many").args(["--", "true"]).output().expect("it can be run");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(err(&output).starts_with("pumice: PUMICE_LOSS=many: "), "{output:?}");
    assert_eq!(run(&[]).status.code(), Some(2));
}

#[test]
fn an_unknown_option_is_a_usage_error_and_not_the_program() {
    for arguments in
        [&["--adr", "127.0.0.1", "--", "echo", "started"][..], &["--adr", "127.0.0.1"], &["-x", "echo"]]
    {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert!(err(&output).contains(&format!("unexpected argument '{}'", arguments[0])), "{output:?}");
    }
    assert!(
        err(&run(&["--adr", "127.0.0.1", "echo"])).contains("--addr"),
        "the option that was meant is named"
    );
    // Behind "--" anything is a program's name, and behind the program all options are its own.
    assert_eq!(run(&["--", "--adr"]).status.code(), Some(127));
    assert_eq!(out(&run(&["echo", "--adr", "-x", "--"])).trim(), "--adr -x --");
    assert_eq!(out(&run(&["--", "echo", "--adr", "--", "-x"])).trim(), "--adr -- -x");
}

/// Whether a Debian program is there; says so loudly when not, past the harness that keeps what tests print.
fn installed(program: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|folder| folder.join(program).is_file());
    if !found {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "**** SKIPPED: no {program}: apt-get install ibverbs-utils");
    }
    found
}

#[test]
fn a_profile_is_what_ibv_devinfo_shows() {
    if !installed("ibv_devinfo") {
        return;
    }
    let folder = scratch("profile");
    let own = folder.join("small.toml");
    let text = "vendor_id = 0x123456\nboard_id = \"my board\"\n[port]\nmax_mtu = 512\npkeys = \
                [0xffff, 0x8005]\n[limits]\nmax_qp = 7\npkey_table_len = 3\n";
    fs::write(&own, text).expect("a new file");
    let shown = |profile: &str| {
        let output = run(&["--addr", "127.101.0.11", "--profile", profile, "--", "ibv_devinfo", "-v"]);
        assert!(output.status.success(), "{output:?}");
        out(&output).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for (profile, parts) in [
        ("default", &["vendor_id: 0xffffff", "board_id: pumice", "max_qp_wr: 16384", "XRC"][..]),
        (
            "rxe",
            &["vendor_id: 0xffffff", "device_cap_flags: 0x01223c76", "max_cqe: 32767", "max_srq_sge: 27"],
        ),
        (
            "connectx",
            &["vendor_id: 0x02c9", "vendor_part_id: 4119", "max_sge: 30", "25.0 Gbps (32)", "4X (2)"],
        ),
        (
            &own.display().to_string(),
            &[
                "vendor_id: 0x123456",
                "board_id: my board",
                "max_qp: 7",
                "active_mtu: 512 (2)",
                "max_pkeys: 3",
            ],
        ),
    ] {
        let text = shown(profile);
        for part in parts {
            assert!(text.contains(part), "{profile}: {part}\n{text}");
        }
        assert!(text.starts_with("hca_id: pumice0"), "{text}");
    }
    fs::write(&own, "[limits]\nmax_qp = 0\n").expect("a file of ours");
    let output = pumice().arg("--profile").arg(&own).args(["--", "true"]).output().expect("it can be run");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(err(&output).ends_with("limits.max_qp is 0, and must be from 1 to 65536\n"), "{output:?}");
}

/// A server and a client of ibv_rc_pingpong, each with options of `pumice run`: what became of the client and
/// the server.
fn pingpong(server: &[&str], client: &[&str], port: &str) -> [std::process::Output; 2] {
    let start = |options: &[&str]| {
        let mut command = pumice();
        command.args(options).args([
            "--",
            "timeout",
            "30",
            "ibv_rc_pingpong",
            "-d",
            "pumice0",
            "-g",
            "0",
            "-c",
        ]);
        command.args(["-n", "300", "-p", port]);
        command
    };
    let mut server = start(server)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it can be run");
    // It does not say when it listens: the client's first tries may be too early.
    let client = loop {
        let output = start(client).arg("localhost").output().expect("it can be run");
        let early = err(&output).contains("Couldn't connect");
        if !early || server.try_wait().expect("a child of ours").is_some() {
            break output;
        }
    };
    [client, server.wait_with_output().expect("a child of ours")]
}

#[test]
fn losses_are_survived_and_captured() {
    if !installed("ibv_rc_pingpong") {
        return;
    }
    let folder = scratch("capture");
    let (pattern, own) = (folder.join("all-%p.pcapng"), folder.join("one.pcapng"));
    let (pattern, own) = (pattern.display().to_string(), own.display().to_string());
    let port = (21_000 + std::process::id() % 900).to_string();
    let [client, server] = pingpong(
        &["--addr", "127.101.0.12", "--loss", "2%", "--seed", "3", "--capture", &pattern],
        &["--addr", "127.101.0.13", "--capture", &own, "--log", "info", "--loss", "1e-3"],
        &port,
    );
    // The side that has got everything ends, and does not repeat its last acknowledgement: if just this one
    // is lost, the other's last request fails, as with any adapter. Everything has arrived all the same.
    let last_failed = "Failed status transport retry counter exceeded (12) for wr_id 2\n";
    let ended = |one: &std::process::Output| one.status.success() && out(one).contains("usec/iter");
    let unconfirmed = |one: &std::process::Output| err(one).contains(last_failed);
    assert!(
        ended(&client) && (ended(&server) || unconfirmed(&server)) || ended(&server) && unconfirmed(&client),
        "{client:?}\n{server:?}"
    );
    assert!(err(&client).contains("0.1 % of what is sent is lost, with seed 1"), "{client:?}");
    let captures: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("a folder of ours")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert_eq!(captures.len(), 2, "{captures:?}");
    for capture in captures {
        let output =
            Command::new(env!("CARGO_BIN_EXE_pumice")).arg("capture").arg("--summary").arg(&capture).output();
        let output = output.expect("the program can be run");
        let text = out(&output);
        assert!(output.status.success() && text.contains(", 0 bad") && text.contains("RC_SEND"), "{text}");
    }
}

#[test]
fn two_processes_share_an_address() {
    if !installed("ibv_rc_pingpong") {
        return;
    }
    let port = (21_000 + (std::process::id() + 1) % 900).to_string();
    for end in pingpong(&["--addr", "127.101.0.14"], &["--addr", "127.101.0.14", "--profile", "rxe"], &port) {
        assert!(end.status.success() && out(&end).contains("usec/iter"), "{end:?}");
    }
}

#[test]
fn a_program_of_musl_gets_one_sentence_and_runs_without_the_library() {
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        eprintln!("**** SKIPPED: apt-get install musl-tools");
        return;
    }
    let folder = scratch("musl");
    let (source, program) = (folder.join("p.c"), folder.join("p"));
    fs::write(&source, "int main(void) { return 3; }").expect("the folder is ours");
    let built = Command::new("musl-gcc").arg("-o").args([&program, &source]).output().expect("it runs");
    assert!(built.status.success(), "{built:?}");
    let program = program.to_str().expect("text");
    let script = folder.join("script");
    fs::write(&script, format!("#!/bin/sh\nexec '{program}'\n")).expect("the folder is ours");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("the folder is ours");
    let script = script.to_str().expect("text");
    let words = format!("exec '{program}'");
    for line in [
        &["--", program][..],
        &["--check", "--", program],
        &["--rsocket", "--", program],
        &["--", "env", "A=b", program],
        &["--", "sh", "-c", &words],
        &["--", script],
        &["--", "env", "sh", script],
    ] {
        let output = run(line);
        let stderr_text = err(&output);
        assert_eq!(stderr_text.lines().count(), 1, "{line:?}: {stderr_text}");
        let begin = format!("pumice: {program} is linked with musl (its loader is /lib/ld-musl-");
        assert!(
            stderr_text.starts_with(&begin) && stderr_text.contains("libpumice.so with glibc"),
            "{line:?}: {stderr_text}"
        );
        assert_eq!(output.status.code(), Some(3), "{line:?}: {output:?}");
    }
    // One program among others of a shell: the others keep the device.
    let output = run(&["--", "sh", "-c", &format!("env; '{program}'")]);
    assert!(
        err(&output).contains("is linked with musl") && out(&output).contains("LD_PRELOAD="),
        "{output:?}"
    );
}

#[test]
fn a_program_with_a_libibverbs_inside_is_named_and_runs() {
    let folder = scratch("inside");
    let at = |name: &str| folder.join(name).display().to_string();
    let inside =
        "const char *warning = \"libibverbs: Warning: no userspace device-specific driver found for %s\\n\";";
    fs::write(at("engine.c"), format!("{inside}\nint call(void) {{ return *warning != 'l'; }}\n"))
        .expect("written");
    fs::write(at("program.c"), "int call(void);\nint main(void) { return call(); }\n").expect("written");
    let compile = |words: &[&str]| Command::new("cc").current_dir(&folder).args(words).status();
    if !compile(&["-shared", "-fPIC", "-o", "libengine.so", "engine.c"]).is_ok_and(|status| status.success())
    {
        return eprintln!("**** SKIPPED: apt-get install gcc");
    }
    let builds: [&[&str]; 3] = [
        &["-o", "brings", "program.c", "-L.", "-lengine", "-Wl,-rpath,$ORIGIN"],
        &["-o", "whole", "program.c", "engine.c"],
        &["-o", "static", "-static", "program.c", "engine.c"],
    ];
    for words in builds {
        assert!(compile(words).expect("cc runs").success(), "{words:?}");
    }
    for (program, holder) in
        [("whole", at("whole")), ("brings", format!("{}, which {} loads,", at("libengine.so"), at("brings")))]
    {
        let output = run(&["--", "sh", "-c", &at(program)]);
        let stderr_text = err(&output);
        let begin = format!("{holder} has a libibverbs inside (it was linked with libibverbs.a)");
        assert!(
            output.status.success() && stderr_text.contains(&begin) && stderr_text.lines().count() == 1,
            "{stderr_text}"
        );
    }
    let stderr_text = err(&run(&["--", &at("static")]));
    assert!(
        stderr_text.contains("is linked statically") && !stderr_text.contains("libibverbs inside"),
        "{stderr_text}"
    );
}
