//! `pumice top`: shows live in a terminal what running processes do.

use std::io::{IsTerminal as _, stdin, stdout};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use clap::Args;
use pumice_transport::path::ROCE_PORT;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use rows::TopSnapshot;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use view::TopView;

use crate::observe::{Snapshot, SnapshotScope};
use crate::outcome::{CommandError, CommandResult, Outcome};
use crate::stat::seconds;

/// The terminal, in raw mode and on its alternate screen. The panic hook of ratatui restores it as well.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    signaled: Arc<AtomicBool>,
}

/// The result of a wait for input.
pub(super) enum ScreenInput {
    Key(KeyCode),
    /// ^C was typed, or a signal arrived that ends the command.
    Signal,
    /// No key was pressed, or the terminal has another size.
    Nothing,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn open() -> io::Result<Screen> {
        let signaled = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&signaled))?;
        }
        Ok(Screen { terminal: ratatui::try_init()?, signaled })
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(drop)
    }

    /// Waits for a key, at most for `most`.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn key(&self, most: Duration) -> io::Result<ScreenInput> {
        let has_event = event::poll(most)?;
        if self.signaled.load(Ordering::Relaxed) {
            return Ok(ScreenInput::Signal);
        }
        if !has_event {
            return Ok(ScreenInput::Nothing);
        }
        match event::read()? {
            Event::Key(key) if key.kind == KeyEventKind::Release => Ok(ScreenInput::Nothing),
            Event::Key(key) if key.modifiers.contains(KeyModifiers::CONTROL) => match key.code {
                KeyCode::Char('c') => Ok(ScreenInput::Signal),
                _ => Ok(ScreenInput::Nothing),
            },
            Event::Key(key) => Ok(ScreenInput::Key(key.code)),
            _ => Ok(ScreenInput::Nothing),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

mod render;
mod rows;
mod view;

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
            ScreenInput::Key(key) => {
                if view.handle_key(key) {
                    return Ok(Outcome::Good);
                }
            }
            ScreenInput::Signal => return Ok(Outcome::Good),
            ScreenInput::Nothing => {}
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
