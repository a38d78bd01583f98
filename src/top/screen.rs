//! The terminal: taken when the command begins, and restored in any case when it ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

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
