//! `pumice top`: shows live in a terminal what running processes do.

mod detail;
mod look;
mod render;
mod rows;
mod screen;
mod view;

use std::io::{IsTerminal as _, stdin, stdout};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use pumice_transport::path::ROCE_PORT;

use crate::observe::{Snapshot, SnapshotScope};
use crate::outcome::{CommandError, CommandResult, Outcome};
use crate::stat::seconds;
use look::TopSnapshot;
use screen::Screen;
use view::TopView;

/// Time for which processes are awaited at each snapshot: a stopped process delays the others by this.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Interval at which a new snapshot, or a signal, is checked for.
const TICK: Duration = Duration::from_millis(100);

/// Options of `pumice top`.
#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    /// Time between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Show only the process with this number
    #[arg(long)]
    pid: Option<u32>,
    /// The UDP port that the processes share
    #[arg(long, default_value_t = ROCE_PORT)]
    port: u16,
    /// Folder of the registry of processes, if it is not the usual one
    #[arg(long, hide = true)]
    registry: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(options: TopOptions) -> CommandResult {
    if !stdin().is_terminal() || !stdout().is_terminal() {
        let sentence = "top needs a terminal: for pipes use \"pumice stat --watch\"";
        return Err(CommandError::Usage(sentence.to_owned()));
    }
    let colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut view = TopView::new(colors);
    let looks = looks(options);
    let mut screen = Screen::open().map_err(CommandError::Output)?;
    loop {
        match looks.try_recv() {
            Ok(Ok(look)) => view.take(look),
            Ok(Err(why)) => view.fails(why),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => view.fails("no more looks are taken".to_owned()),
        }
        screen.draw(|frame| render::draw(&mut view, frame)).map_err(CommandError::Output)?;
        match screen.key(TICK).map_err(CommandError::Output)? {
            screen::ScreenInput::Key(key) => {
                if view.handle_key(key) {
                    return Ok(Outcome::Good);
                }
            }
            screen::ScreenInput::Signal => return Ok(Outcome::Good),
            screen::ScreenInput::Nothing => {}
        }
    }
}

/// Takes snapshots of the processes in a thread of its own, so that a stopped process does not delay the
/// keys.
fn looks(options: TopOptions) -> Receiver<Result<TopSnapshot, String>> {
    let (sender, receiver): (SyncSender<_>, _) = sync_channel(1);
    thread::spawn(move || {
        let TopOptions { interval, pid, port, registry } = options;
        let scope = SnapshotScope { port, registry: registry.as_deref(), pid, patience: TIMEOUT };
        let mut before: Option<(Snapshot, Instant)> = None;
        loop {
            let begun = Instant::now();
            let look = scope.look().map(|after| {
                let at = Instant::now();
                let elapsed_ns = before.as_ref().map_or(0, |(_, before)| (at - *before).as_nanos() as u64);
                let look = match &before {
                    Some((before, _)) => TopSnapshot::after(before, after.clone(), elapsed_ns),
                    None => TopSnapshot::after(&after, after.clone(), 0),
                };
                before = Some((after, at));
                look
            });
            if sender.send(look).is_err() {
                return;
            }
            thread::sleep(interval.saturating_sub(begun.elapsed()));
        }
    });
    receiver
}
