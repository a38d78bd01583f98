//! Where `pumice world replay --stop-at` stops: at an event by its number, at one by its call, or where the
//! program exits.

use std::str::FromStr;

use pumice_world::Recording;

/// The event at which a replay stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StopAt {
    /// The event with this number, from 1.
    Event(u64),
    /// The call by which the first process ends.
    Exit,
    /// The call with this name, of one thread or of any: the first one, or a later one by number.
    Call { thread: Option<String>, call: String, number: u64 },
}

impl FromStr for StopAt {
    type Err = String;

    fn from_str(text: &str) -> Result<StopAt, String> {
        if let Ok(event) = text.parse() {
            return if event > 0 { Ok(StopAt::Event(event)) } else { Err("events count from 1".to_owned()) };
        }
        if text == "exit" {
            return Ok(StopAt::Exit);
        }
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let is_number = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
        let number = match words.pop_if(|word| is_number(&&**word)) {
            None => 1,
            Some(word) => word.parse().ok().filter(|number| *number > 0).ok_or("calls count from 1")?,
        };
        let (thread, call) = match words[..] {
            [call] => (None, call),
            [thread, call] if is_thread(thread) => (Some(thread.to_owned()), call),
            _ => {
                return Err(
                    r#"the number of an event, "exit", or [THREAD] CALL [NUMBER], as in "p1.t2 write 3""#
                        .to_owned(),
                );
            }
        };
        Ok(StopAt::Call { thread, call: call.to_owned(), number })
    }
}

impl StopAt {
    /// Returns the number of the event in a recording, which is read to its end or to the event.
    pub(super) fn event(&self, recording: &mut Recording) -> Result<u64, String> {
        let (thread, call, number) = match self {
            StopAt::Event(event) => return Ok(*event),
            StopAt::Exit => (None, "exit_group", u64::MAX),
            StopAt::Call { thread, call, number } => (thread.as_deref(), call.as_str(), *number),
        };
        let (mut found, mut last, mut events) = (0, None, 0);
        while let Some(event) = recording.next_event() {
            events += 1;
            let mut words = event.split(' ').skip(1);
            let (its_thread, its_call) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            let is_wanted = match self {
                StopAt::Exit => its_thread.starts_with("p1."),
                _ => thread.is_none_or(|thread| thread == its_thread),
            };
            if is_wanted && its_call == call {
                (found, last) = (found + 1, Some(events));
                if found == number {
                    return Ok(events);
                }
            }
        }
        match (self, last) {
            (StopAt::Exit, Some(event)) => Ok(event),
            (StopAt::Exit, None) => {
                Err("--stop-at exit: in the recorded run the program did not exit".to_owned())
            }
            _ => {
                let of = thread.map_or_else(String::new, |thread| format!(" of {thread}"));
                Err(format!("--stop-at: the recorded run has {found} calls {call}{of}"))
            }
        }
    }
}

/// Reports whether a word is the name of a thread, as "p1.t2".
fn is_thread(word: &str) -> bool {
    let parts = word.strip_prefix('p').and_then(|rest| rest.split_once(".t"));
    parts.is_some_and(|(process, thread)| process.parse::<u32>().is_ok() && thread.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_given_by_number_by_exit_or_by_call() {
        let call = |thread: Option<&str>, call: &str, number| StopAt::Call {
            thread: thread.map(str::to_owned),
            call: call.to_owned(),
            number,
        };
        for (text, meant) in [
            ("212", StopAt::Event(212)),
            ("exit", StopAt::Exit),
            ("write", call(None, "write", 1)),
            ("write 3", call(None, "write", 3)),
            ("p1.t2 futex", call(Some("p1.t2"), "futex", 1)),
            ("p12.t2 futex 40", call(Some("p12.t2"), "futex", 40)),
        ] {
            assert_eq!(text.parse(), Ok(meant), "{text}");
        }
        for text in ["", "0", "write 0", "p1 write", "p1.t2 write 3 4", "a b c"] {
            assert!(text.parse::<StopAt>().is_err(), "{text}");
        }
    }
}
