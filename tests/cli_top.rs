//! `pumice top` in a terminal: what is on its screen while a program runs.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

#[path = "fault/scratch.rs"]
mod scratch;

use scratch::{LineDrivenProgram, Scratch, compile};

const ROWS: u16 = 24;
const COLUMNS: u16 = 100;

/// The command in a terminal of its own.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: vt100::Parser,
    /// Everything that was written.
    written: Vec<u8>,
}

impl Terminal {
    /// None: util-linux's script(1), which makes the terminal, is not here.
    fn open(scratch: &Scratch, options: &str) -> Option<Terminal> {
        if Command::new("script").arg("--version").output().is_err() {
            eprintln!("**** SKIPPED: apt-get install bsdutils");
            return None;
        }
        let pumice = env!("CARGO_BIN_EXE_pumice");
        let line = format!("stty rows {ROWS} cols {COLUMNS}; exec '{pumice}' top {options}");
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        command.env("TERM", "xterm").env("XDG_RUNTIME_DIR", &scratch.0).env_remove("NO_COLOR");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script can be run");
        let keys = child.stdin.take().expect("a pipe");
        let screen = vt100::Parser::new(ROWS, COLUMNS, 0);
        Some(Terminal { child, keys, screen, written: Vec::new() })
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it reads");
    }

    /// Reads what it writes, until the screen has all of these.
    fn shows(&mut self, wanted: &[&str]) -> String {
        loop {
            let text = self.screen.screen().contents();
            if wanted.iter().all(|part| text.contains(part)) {
                return text;
            }
            assert!(self.reads(), "it ended before it showed {wanted:?}: {text}");
        }
    }

    /// Reads some of what it writes; false: that was all.
    fn reads(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let output = self.child.stdout.as_mut().expect("a pipe");
        let count = output.read(&mut bytes).expect("it writes");
        self.screen.process(&bytes[..count]);
        self.written.extend_from_slice(&bytes[..count]);
        count > 0
    }

    /// It ends: its exit code, and all that it wrote.
    fn ends(mut self) -> (Option<i32>, String) {
        while self.reads() {}
        (self.child.wait().expect("it ends").code(), String::from_utf8_lossy(&self.written).into_owned())
    }
}

#[test]
fn a_program_is_watched_by_keys_and_the_terminal_is_given_back() {
    let scratch = Scratch::new("top");
    let Some(program) = compile(&scratch, "paced") else { return };
    let mut paced = LineDrivenProgram::alone(&scratch, &program, 21, &["--tag", "watched"]);
    paced.sends(40);
    let pid = paced.child.id();
    let Some(mut terminal) = Terminal::open(&scratch, &format!("--interval 0.1 --pid {pid}")) else { return };
    let pid = pid.to_string();
    terminal.shows(&["pumice top  1 processes", "paced", "watched", &pid, "RTS", "q quit"]);
    // The only queue pair, with all its numbers, which go on.
    terminal.press("\r");
    terminal.shows(&["queue pair", "40 posted, 40 ended", "in flight", "last error   none"]);
    paced.sends(2);
    terminal.shows(&["42 posted, 42 ended"]);
    terminal.press(" ");
    terminal.shows(&["FROZEN"]);
    terminal.press(" ?");
    terminal.press("\x7f");
    terminal.shows(&["tab list"]);
    terminal.press("/zzz\r");
    terminal.shows(&["0 queue pairs", "with \"zzz\""]);
    terminal.press("\t");
    terminal.shows(&["completion queues"]);
    terminal.press("q");
    let (code, written) = terminal.ends();
    assert_eq!(code, Some(0), "{written}");
    assert!(written.contains("\x1b[?1049h") && written.contains("\x1b[?1049l"), "{written}");
    paced.ends();
}

#[test]
fn control_c_ends_it_and_without_a_terminal_it_says_what_to_do() {
    let scratch = Scratch::new("top-end");
    let Some(mut terminal) = Terminal::open(&scratch, "--pid 1") else { return };
    terminal.shows(&["pumice top  0 processes"]);
    terminal.press("\x03");
    let (code, written) = terminal.ends();
    assert!(code == Some(0) && written.contains("\x1b[?1049l"), "{written}");

    let output = scratch.pumice(&["top"]).stdin(Stdio::null()).output().expect("it can be run");
    let stderr_text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr_text}");
    assert!(
        stderr_text.contains("top needs a terminal") && stderr_text.contains("pumice stat --watch"),
        "{stderr_text}"
    );
}
