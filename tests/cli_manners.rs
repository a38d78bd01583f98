//! Manners of the command line: versions, completions, manual pages, hints, no colour where no terminal is,
//! bars only where one is, JSON everywhere.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.args(arguments);
    command
}

fn pumice(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the program can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder of this test's own, empty.
fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("pumice-manners-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

/// Whether a program of others is here; says what is left out if not.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        eprintln!("**** SKIPPED: {program} is not installed");
    }
    found.is_ok()
}

#[test]
fn the_version_says_what_was_built_from_what() {
    let long = text(&pumice(&["--version"]).stdout);
    let mut lines = long.lines();
    assert_eq!(lines.next(), Some(concat!("pumice ", env!("CARGO_PKG_VERSION"))));
    for field in ["commit:   ", "features: ", "target:   ", "profile:  "] {
        let line = lines.next().unwrap_or_default();
        assert!(line.len() > field.len() && line.starts_with(field), "{field}: {long}");
    }
    let short = text(&pumice(&["-V"]).stdout);
    assert!(short.starts_with(concat!("pumice ", env!("CARGO_PKG_VERSION"), " (commit ")), "{short}");
}

#[test]
fn completions_are_scripts_that_the_shells_read_and_that_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = pumice(&["completions", shell]);
        assert!(script.status.success(), "{script:?}");
        let script = text(&script.stdout);
        for word in ["sweep", "fault-report", "trace-limit"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        if has(shell) {
            let mut read = Command::new(shell);
            read.arg("-n").stdin(Stdio::piped());
            let mut read = read.spawn().expect("the shell can be run");
            read.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("it reads");
            assert!(read.wait().expect("it ends").success(), "{shell}");
        }
    }
    // What bash offers for a word that is begun.
    let script = "source <(\"$0\" completions bash); COMP_WORDS=(pumice sw); COMP_CWORD=1; \
                  _pumice pumice sw pumice; echo \"${COMPREPLY[@]}\"";
    let offered = Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_pumice")]).output();
    let offered = offered.expect("scripts of this project are bash's");
    assert_eq!(text(&offered.stdout).trim(), "sweep", "{offered:?}");
    assert_eq!(pumice(&["completions", "csh"]).status.code(), Some(2));
}

#[test]
fn every_command_has_a_manual_page() {
    let top = text(&pumice(&["man"]).stdout);
    assert!(top.contains(".TH pumice 1") && top.contains("pumice\\-sweep(1)"), "{top}");
    let folder = scratch("man");
    let output = pumice(&["man", "--out", &folder.join("pages").display().to_string()]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    for page in ["pumice", "pumice-run", "pumice-fault-compare", "pumice-perf-loop"] {
        let file = folder.join("pages").join(format!("{page}.1"));
        let roff = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(roff.contains(".SH SYNOPSIS"), "{page}");
        assert!(!roff.contains("__end"), "{page} shows what is hidden");
        if has("man") {
            let shown = Command::new("man").arg("--warnings").arg(&file).env("LC_ALL", "C.UTF-8").output();
            let shown = shown.expect("it can be run");
            assert!(shown.status.success() && shown.stderr.is_empty(), "{page}: {}", text(&shown.stderr));
        }
    }
    let file = folder.join("pages/pumice.1/x").display().to_string();
    let refused = pumice(&["man", "--out", &file]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("name a folder"), "{refused:?}");
    std::fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn misspelt_words_are_reported_with_suggestions() {
    for (arguments, meant) in [
        (&["swep"][..], "'sweep'"),
        (&["run", "--los", "1%", "--", "true"], "'--loss'"),
        (&["run", "--profile", "conectx", "--", "true"], "did you mean connectx?"),
        (&["run", "--faults", "flaky-cabel", "--", "true"], "did you mean flaky-cable?"),
        (&["run", "--fault", "dorp chance=1%", "--", "true"], "did you mean drop?"),
        (&["run", "--fault", "drop chanse=1%", "--", "true"], "did you mean chance?"),
        (&["run", "--fault", "drop opcode=sned", "--", "true"], "did you mean send?"),
        (&["fault", "plans", "link_flap"], "did you mean link-flap?"),
        (&["explain", "RETRY_EXEC_ERR"], "did you mean RETRY_EXC_ERR"),
    ] {
        let output = pumice(arguments);
        // That a file cannot be read is a fact of this host.
        let code = if arguments.contains(&"--profile") { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(meant), "{arguments:?}: {}", text(&output.stderr));
    }
    let variables = [("PUMICE_LOS", "1%"), ("PUMICE_PYTHON", "python3"), ("PUMICE_SEED", "7")];
    let output = command(&["run", "--", "true"]).envs(variables).output().expect("it can be run");
    let stderr_text = text(&output.stderr);
    assert_eq!(
        stderr_text,
        "pumice: PUMICE_LOS is no variable of pumice, and has no effect; did you mean PUMICE_LOSS?\n"
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn without_a_terminal_there_is_no_colour_and_no_bar() {
    for arguments in [&["--help"][..], &["run", "--help"], &["nothing"], &["doctor"], &["fault", "kinds"]] {
        let output = command(arguments).env("TERM", "xterm-256color").output().expect("it can be run");
        assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b), "{arguments:?}");
    }
    let short = ["--op", "send", "--rounds", "2", "--for", "0.02"];
    let ends = ["--addr", "127.0.1.1", "--peer-addr", "127.0.1.2"];
    let output = pumice(&[&["perf", "loop"][..], &short, &ends].concat());
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// What a command writes to a terminal; none without util-linux's script(1), which makes the terminal.
fn in_terminal(line: &str, variables: &[(&str, &str)]) -> Option<Vec<u8>> {
    if !has("script") {
        return None;
    }
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", line, "/dev/null"]).stdin(Stdio::null());
    script.env("TERM", "xterm-256color").env_remove("NO_COLOR").envs(variables.iter().copied());
    Some(script.output().expect("it can be run").stdout)
}

#[test]
fn a_terminal_shows_colours_unless_the_user_wants_none() {
    let line = format!("'{}' nothing", env!("CARGO_BIN_EXE_pumice"));
    let Some(coloured) = in_terminal(&line, &[]) else { return };
    assert!(coloured.contains(&0x1b), "{}", text(&coloured));
    let plain = in_terminal(&line, &[("NO_COLOR", "1")]).expect("as before");
    assert!(!plain.contains(&0x1b) && text(&plain).contains("unrecognized subcommand"), "{}", text(&plain));
}

#[test]
fn a_long_measurement_shows_a_bar_on_a_terminal_and_not_in_its_report() {
    let folder = scratch("bar");
    let report = folder.join("report");
    // Long enough on any machine: it is ended as soon as the bar is there.
    let line = format!(
        "'{}' perf loop --op send --rounds 1000 --for 100 --addr 127.0.1.3 --peer-addr 127.0.1.4 > '{}'",
        env!("CARGO_BIN_EXE_pumice"),
        report.display()
    );
    if !has("script") {
        return;
    }
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
    script.env("TERM", "xterm-256color").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut script = script.spawn().expect("it can be run");
    let mut shown = Vec::new();
    let mut terminal = script.stdout.take().expect("a pipe");
    while !text(&shown).contains("/1000 rounds") {
        let mut bytes = [0; 4096];
        let count = std::io::Read::read(&mut terminal, &mut bytes).expect("it writes");
        assert!(count > 0, "it ended without a bar: {}", text(&shown));
        shown.extend_from_slice(&bytes[..count]);
    }
    drop(terminal);
    script.kill().expect("it runs");
    script.wait().expect("it ends");
    assert_eq!(std::fs::read(&report).expect("the shell made it"), b"", "the report comes last");
    std::fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn an_exercise_that_is_checked_says_on_a_terminal_what_it_waits_for() {
    let line = format!("'{}' course check 1 -- true", env!("CARGO_BIN_EXE_pumice"));
    let Some(shown) = in_terminal(&line, &[]) else { return };
    assert!(text(&shown).contains("your program runs"), "{}", text(&shown));
    let silent = pumice(&["course", "check", "1", "--", "true"]);
    assert!(!text(&silent.stderr).contains("your program runs"), "{silent:?}");
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = pumice(arguments);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"))
}

#[test]
fn plans_and_kinds_of_faults_are_json() {
    let kinds = json(&["fault", "kinds", "--json"]);
    let drop = &kinds["kinds"][0];
    assert!(drop["name"].is_string() && drop["example"].is_string() && drop["fields"].is_array(), "{drop}");
    for group in ["when", "packets", "calls", "completions", "completion_events"] {
        assert!(kinds[group][0]["meaning"].is_string(), "{group}");
    }
    let plans = json(&["fault", "plans", "--json"]);
    assert!(plans.as_array().is_some_and(|plans| plans.len() > 10), "{plans}");
    let plan = json(&["fault", "plans", "flaky-cable", "--json"]);
    assert_eq!(plans[0], plan);
    let folder = scratch("plans");
    let file = folder.join("plan.toml");
    std::fs::write(&file, plan["plan"].as_str().expect("a text")).expect("it is ours");
    let checked = json(&["fault", "check", &file.display().to_string(), "--json"]);
    assert!(checked["seed"].is_u64() && checked["rules"][0].is_string(), "{checked}");
    std::fs::remove_dir_all(folder).expect("it is ours");
}

/// The limit of a stack is the program's, whose threads would each take it.
#[test]
fn commands_work_with_a_small_stack_and_programs_inherit_it() {
    let folder = scratch("small-stack");
    let with = |limit: &str, words: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limit} exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_pumice")]);
        command.args(words).current_dir(&folder).env("XDG_RUNTIME_DIR", &folder);
        command.output().expect("sh can be run")
    };
    let mut commands = vec![
        vec!["run", "--", "true"],
        vec!["check", "--", "true"],
        vec!["doctor"],
        vec!["explain", "ENOMEM"],
    ];
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        commands.push(vec!["world", "--", "true"]);
    }
    for words in commands {
        let (small, usual) = (with("ulimit -s 128;", &words), with("", &words));
        assert_eq!(small.status, usual.status, "{words:?}: {small:?}");
        assert!(small.status.code().is_some_and(|code| code <= 1), "{words:?}: {small:?}");
    }
    let limits = with("ulimit -s 128;", &["run", "--", "sh", "-c", "ulimit -s; ulimit -Hs"]);
    assert_eq!(text(&limits.stdout), "128\n128\n", "{limits:?}");
    std::fs::remove_dir_all(&folder).expect("it is ours");
}
