//! The measuring end: runs tests one after the other, and reports them.

use std::io::{self, Write};
use std::net::TcpStream;

use indicatif::ProgressBar;
use pumice_perf::{Plan, Session, SessionOptions};

use super::options::EndSettings;
use super::report::{Reporter, progress};
use super::wording::in_words;

/// Connects to a server by name or address.
///
/// # Errors
/// A sentence.
pub(crate) fn reach(host: &str, port: u16) -> Result<TcpStream, String> {
    TcpStream::connect((host, port)).map_err(|error| {
        format!("no server at {host}, TCP port {port}: {error}; start \"pumice perf server\" there first")
    })
}

/// Opens a session with a device that has these settings.
///
/// # Errors
/// A sentence.
pub(crate) fn open(
    plan: &Plan,
    stream: TcpStream,
    settings: &EndSettings,
    second_core: Option<usize>,
) -> Result<Session, String> {
    let (address, capture) = (settings.addr, settings.capture.clone());
    let options = SessionOptions { address, capture, second_core };
    Session::open(plan, stream, &options).map_err(|error| in_words(&error))
}

/// Measures plans one after the other, each with a session of its own, and reports each. `second_core` is the
/// core of the second thread of yardsticks.
///
/// # Errors
/// A sentence.
pub(crate) fn measure(
    plans: &[Plan],
    settings: &EndSettings,
    second_core: Option<usize>,
    connect: &dyn Fn() -> Result<TcpStream, String>,
    out: &mut dyn Write,
) -> Result<(), String> {
    let mut reporter = Reporter::new(settings.json);
    let unwritten = |error: io::Error| format!("the report cannot be written: {error}");
    for plan in plans {
        let mut session = open(plan, connect()?, settings, second_core)?;
        let bar = progress(plan, settings.json);
        let report = session.run(&mut after_round(plan, &bar)).map_err(|error| in_words(&error))?;
        reporter.print(&report, out).map_err(unwritten)?;
    }
    reporter.finish(out).map_err(unwritten)
}

/// Advances the bar, and removes it after the last round.
pub(crate) fn after_round<'a>(plan: &Plan, bar: &'a ProgressBar) -> impl FnMut(usize) + 'a {
    let rounds = plan.rounds;
    move |done| {
        bar.inc(1);
        if done == rounds {
            bar.finish_and_clear();
        }
    }
}
