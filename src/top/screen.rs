//! The terminal: taken when the command begins, and given back however it ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The terminal, in raw mode and on its other screen. A panic gives it back as well: ratatui's hook.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    signaled: Arc<AtomicBool>,
}

/// What came.
pub(super) enum Input {
    Key(KeyCode),
    /// ^C, or a signal that ends the command.
    Signal,
    /// Nothing, or the terminal has another size.
    Nothing,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// What the system says.
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

    /// Waits for a key, at most so long.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn key(&self, most: Duration) -> io::Result<Input> {
        let came = event::poll(most)?;
        if self.signaled.load(Ordering::Relaxed) {
            return Ok(Input::Signal);
        }
        if !came {
            return Ok(Input::Nothing);
        }
        match event::read()? {
            Event::Key(key) if key.kind == KeyEventKind::Release => Ok(Input::Nothing),
            Event::Key(key) if key.modifiers.contains(KeyModifiers::CONTROL) => match key.code {
                KeyCode::Char('c') => Ok(Input::Signal),
                _ => Ok(Input::Nothing),
            },
            Event::Key(key) => Ok(Input::Key(key.code)),
            _ => Ok(Input::Nothing),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}
