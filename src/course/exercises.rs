//! The exercises: their tasks, and the conditions by which a run passes.

use std::ffi::OsString;

use pumice_device::trace::Record;

use super::attempt::{Attempt, AttemptFolder, RunningEnd, TIMEOUT};
use crate::outcome::CommandError;

/// An exercise of the course.
#[derive(Debug)]
pub(super) struct Exercise {
    /// The title of its chapter.
    pub(super) title: &'static str,
    /// Task of the reader.
    pub(super) task: &'static str,
    /// Ends of the program that are run.
    programs: ExercisePrograms,
}

/// The way in which a program is run, and the function that returns a sentence for each thing missing in its
/// runs.
#[derive(Debug)]
enum ExercisePrograms {
    /// The program runs once, with these options of `pumice run`.
    One(&'static [&'static str], fn(&Attempt) -> Vec<String>),
    /// The program runs as `PROGRAM server ADDRESS`, which prints `ready`, and for each of these words, one
    /// after the other, as `PROGRAM client ADDRESS WORD`. The function judges the run of a client, with its
    /// word.
    Two(&'static [&'static str], fn(&Attempt, &str) -> Vec<String>),
}

const SERVER: &str = "127.0.0.81";
const CLIENT: &str = "127.0.0.82";

/// Number of the opcode SEND in verbs, as traces have it.
const SEND: u8 = 2;
const READ: u8 = 4;
const FETCH_ADD: u8 = 6;
const RTS: u8 = 3;
const ERR: u8 = 6;
const WR_FLUSH_ERR: u8 = 5;

/// All exercises, by chapter.
pub(super) const EXERCISES: &[Exercise] = &[
    Exercise {
        title: "Memory and keys",
        task: "register as much memory as the device permits. Try 1 MiB first; while ibv_reg_mr fails, try \
               half as much. Print \"registered N bytes\".",
        programs: ExercisePrograms::One(&["--memlock=64KiB"], memory),
    },
    Exercise {
        title: "Queue pairs and their states",
        task: "bring two queue pairs to RTS, post a receive to one of them, move it to ERR, and poll. Print \
               the status of the completion, with ibv_wc_status_str.",
        programs: ExercisePrograms::One(&[], states),
    },
    Exercise {
        title: "Send and receive",
        task: "send ten messages, the first of 1 byte, the tenth of 10 bytes. The receiver is never without \
               a receive. Print the length of each message that arrives, one a line.",
        programs: ExercisePrograms::One(&[], messages),
    },
    Exercise {
        title: "Reads, writes and atomics",
        task: "add 1 to a counter of the peer, 100 times, with FETCH_AND_ADD. Then READ the counter, and \
               print \"counter 100\".",
        programs: ExercisePrograms::One(&[], one_sided),
    },
    Exercise {
        title: "Completions, events and flow control",
        task: "send 1000 messages to a peer with 64 receives. At most one send in 20 is signaled. The \
               receiver is never without a receive.",
        programs: ExercisePrograms::One(&[], events),
    },
    Exercise {
        title: "Connections by rdma_cm",
        task: "write a server for three clients, one after the other. It answers \"hello NAME\" to each \
               name, which the client prints. \"PROGRAM server ADDRESS\" prints \"ready\" when it listens; \
               \"PROGRAM client ADDRESS NAME\" is the other end.",
        programs: ExercisePrograms::Two(&["ada", "grace", "edsger"], connections),
    },
];

impl Exercise {
    /// Runs the reader's program, and returns what is missing; empty if it passed.
    ///
    /// # Errors
    /// The program cannot be run.
    pub(super) fn missing(&self, program: &[OsString]) -> Result<Vec<String>, CommandError> {
        let folder = AttemptFolder::new()?;
        match self.programs {
            ExercisePrograms::One(options, judge) => {
                let attempt = RunningEnd::start(&folder, "the program", options, program)?.finish()?;
                let mut missing = usual(&attempt);
                missing.extend(judge(&attempt));
                Ok(missing)
            }
            ExercisePrograms::Two(words, judge) => {
                let with = |end: &[&str]| {
                    let more = end.iter().map(OsString::from);
                    program.iter().cloned().chain(more).collect::<Vec<_>>()
                };
                let options = ["--addr", SERVER];
                let server = RunningEnd::start(&folder, "the server", &options, &with(&["server", SERVER]))?;
                let mut missing = Vec::new();
                if server.has_printed("ready")? {
                    for word in words {
                        let who = format!("client {word}");
                        let words = with(&["client", SERVER, word]);
                        let client =
                            RunningEnd::start(&folder, &who, &["--addr", CLIENT], &words)?.finish()?;
                        missing.extend(usual(&client));
                        missing.extend(judge(&client, word));
                    }
                } else {
                    missing.push("the server did not print \"ready\" on a line of its own".to_owned());
                }
                missing.extend(usual(&server.finish()?));
                Ok(missing)
            }
        }
    }
}

/// Checks what every program must do: use the device, end well, and make no mistake that `--check` finds.
fn usual(attempt: &Attempt) -> Vec<String> {
    let who = &attempt.who;
    let mut missing = Vec::new();
    match attempt.ended {
        None => missing.push(format!("{who} did not end within {} s", TIMEOUT.as_secs())),
        Some(status) if !status.success() => {
            let last = attempt.complained.lines().rfind(|line| !line.starts_with("pumice: check"));
            let last = last.map_or_else(String::new, |line| format!(": {line}"));
            missing.push(format!("{who} ended with {status}{last}"));
        }
        Some(_) if !attempt.used_device() => {
            missing.push(format!("{who} opened no device: is it linked with -libverbs?"));
        }
        Some(_) => {}
    }
    missing.extend(attempt.findings.iter().map(|finding| format!("{who}: --check found {finding}")));
    missing
}

/// Returns the sentences of the conditions that do not hold.
fn unless(conditions: &[(bool, &str)]) -> Vec<String> {
    conditions.iter().filter(|(holds, _)| !holds).map(|(_, sentence)| (*sentence).to_owned()).collect()
}

fn memory(attempt: &Attempt) -> Vec<String> {
    // A buffer that does not begin at a page boundary needs one page more than 64 KiB.
    let has = |line: &str| attempt.printed.lines().any(|printed| printed.trim() == line);
    let is_most = has("registered 65536 bytes") || has("registered 32768 bytes");
    let is_tried = attempt.complained.contains("--memlock permits 64 KiB");
    unless(&[
        (
            is_most,
            "the program did not print \"registered 65536 bytes\", or 32768: the most that is permitted",
        ),
        (is_tried, "the program never asked for more than is permitted: begin with 1 MiB"),
    ])
}

fn states(attempt: &Attempt) -> Vec<String> {
    let reached = |state: u8| attempt.count(|r| matches!(r, Record::StateChanged { to, .. } if *to == state));
    let flushed = attempt.count(|r| matches!(r, Record::Completed { status, .. } if *status == WR_FLUSH_ERR));
    let is_printed = attempt.printed.to_lowercase().contains("flushed error");
    unless(&[
        (reached(RTS) >= 2, "fewer than two queue pairs came to RTS"),
        (reached(ERR) >= 1, "no queue pair came to ERR"),
        (flushed >= 1, "no receive came back with WR_FLUSH_ERR: post it before the queue pair goes to ERR"),
        (is_printed, "the program did not print what ibv_wc_status_str says of the status"),
    ])
}

/// Counts the posted requests whose operation and length satisfy a condition.
fn posted(attempt: &Attempt, is_of: impl Fn(u8, u32) -> bool) -> usize {
    attempt.count(|r| matches!(r, Record::SendPosted { opcode, length, .. } if is_of(*opcode, *length)))
}

/// Counts the RNR NAKs that a sender received.
fn refused(attempt: &Attempt) -> usize {
    attempt.count(|r| matches!(r, Record::ReceiverNotReady { .. }))
}

fn messages(attempt: &Attempt) -> Vec<String> {
    let mut missing = Vec::new();
    for bytes in 1..=10 {
        if posted(attempt, |opcode, length| opcode == SEND && length == bytes) == 0 {
            missing.push(format!("no SEND of {bytes} bytes was posted"));
        }
        if !attempt.printed.lines().any(|line| line.trim() == bytes.to_string()) {
            missing.push(format!("no line says that {bytes} bytes arrived"));
        }
    }
    let is_ready = refused(attempt) == 0;
    missing.extend(unless(&[(is_ready, "a message arrived before its receive was posted (RNR)")]));
    missing
}

fn one_sided(attempt: &Attempt) -> Vec<String> {
    let has_result = attempt.printed.lines().any(|line| line.trim() == "counter 100");
    unless(&[
        (
            posted(attempt, |opcode, _| opcode == FETCH_ADD) >= 100,
            "fewer than 100 FETCH_AND_ADDs were posted",
        ),
        (posted(attempt, |opcode, _| opcode == READ) >= 1, "no READ was posted"),
        (has_result, "the program did not print \"counter 100\""),
    ])
}

fn events(attempt: &Attempt) -> Vec<String> {
    // The counts of the end that sends: the other end has fewer.
    let (mut sent, mut signals) = ([0_usize; 2], [0_usize; 2]);
    attempt.count(|record| {
        if let Record::SendPosted { qp, signaled, .. } = record
            && let (Some(sent), Some(signals)) = (sent.get_mut(*qp as usize), signals.get_mut(*qp as usize))
        {
            *sent += 1;
            *signals += usize::from(*signaled);
        }
        false
    });
    let most = usize::from(sent[1] > sent[0]);
    unless(&[
        (sent[most] >= 1000, "fewer than 1000 messages were sent by one queue pair"),
        (signals[most] * 20 <= sent[most], "more than one send in 20 is signaled"),
        (refused(attempt) == 0, "a message arrived before its receive was posted (RNR)"),
    ])
}

fn connections(client: &Attempt, name: &str) -> Vec<String> {
    let answer = format!("hello {name}");
    if client.printed.lines().any(|line| line.trim() == answer) {
        return Vec::new();
    }
    vec![format!("client {name} did not print \"{answer}\"")]
}
