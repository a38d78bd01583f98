//! The state of the screen, and the effect of keys on it; it uses no terminal and no clock.

use ratatui::crossterm::event::KeyCode;

use super::rows::{RowKey, TopList, TopRow, TopSnapshot, rows};

/// Maximum length of the filter, in characters.
const MAX_FILTER: usize = 64;

/// The mode, which decides what the keys mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ViewMode {
    Lists,
    /// The filter is being typed.
    Filter,
    /// The details of one queue pair are shown.
    Detail(RowKey),
    Help,
}

/// The whole state of the screen.
#[derive(Debug)]
pub(super) struct TopView {
    pub(super) look: TopSnapshot,
    pub(super) mode: ViewMode,
    pub(super) list: TopList,
    /// Index of the column by which the list is sorted.
    pub(super) column: usize,
    pub(super) reverse: bool,
    pub(super) filter: String,
    /// The selected row.
    pub(super) selected: Option<RowKey>,
    /// Index of the selected row in the list when it was last shown.
    pub(super) selected_row: usize,
    pub(super) frozen: bool,
    pub(super) colors: bool,
    /// Reason why the last snapshot failed.
    pub(super) trouble: Option<String>,
    /// No snapshot has been taken yet.
    pub(super) waits: bool,
}

impl TopView {
    pub(super) fn new(colors: bool) -> TopView {
        TopView {
            look: TopSnapshot::default(),
            mode: ViewMode::Lists,
            list: TopList::QueuePairs,
            column: 0,
            reverse: false,
            filter: String::new(),
            selected: None,
            selected_row: 0,
            frozen: false,
            colors,
            trouble: None,
            waits: true,
        }
    }

    /// Takes a new snapshot; nothing changes while the view is frozen.
    pub(super) fn take(&mut self, look: TopSnapshot) {
        self.waits = false;
        self.trouble = None;
        if !self.frozen {
            self.look = look;
        }
    }

    /// Notes that a snapshot failed.
    pub(super) fn fails(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// Returns the rows of the list. The selected row stays selected when sorting moves it. If it is no
    /// longer in the list, the row at its place is selected.
    pub(super) fn rows(&mut self) -> Vec<TopRow> {
        let all = rows(&self.look, self.list, &self.filter, self.column, self.reverse);
        let found = self.selected.and_then(|key| all.iter().position(|row| row.key == key));
        self.selected_row = found.unwrap_or(self.selected_row).min(all.len().saturating_sub(1));
        self.selected = all.get(self.selected_row).map(|row| row.key);
        all
    }

    /// Handles a key; returns true if the command ends.
    pub(super) fn handle_key(&mut self, key: KeyCode) -> bool {
        match self.mode {
            ViewMode::Filter => self.write_filter(key),
            ViewMode::Help => self.mode = ViewMode::Lists,
            ViewMode::Detail(_) => match key {
                KeyCode::Char('q') => return true,
                KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.mode = ViewMode::Lists,
                KeyCode::Char(' ') => self.frozen = !self.frozen,
                _ => {}
            },
            ViewMode::Lists => return self.in_lists(key),
        }
        false
    }

    fn in_lists(&mut self, key: KeyCode) -> bool {
        match key {
            KeyCode::Char('q') => return true,
            KeyCode::Char('?' | 'h') => self.mode = ViewMode::Help,
            KeyCode::Char('/') => self.mode = ViewMode::Filter,
            KeyCode::Char(' ') => self.frozen = !self.frozen,
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Char('s') => self.column = (self.column + 1) % self.list.columns().len(),
            KeyCode::Tab => self.turn_to(1),
            KeyCode::BackTab => self.turn_to(TopList::ALL.len() - 1),
            KeyCode::Up | KeyCode::Char('k') => self.step(|row, _| row.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.step(|row, _| row + 1),
            KeyCode::PageUp => self.step(|row, _| row.saturating_sub(10)),
            KeyCode::PageDown => self.step(|row, _| row + 10),
            KeyCode::Home | KeyCode::Char('g') => self.step(|_, _| 0),
            KeyCode::End | KeyCode::Char('G') => self.step(|_, last| last),
            KeyCode::Enter if self.list == TopList::QueuePairs => {
                self.rows();
                if let Some(key) = self.selected {
                    self.mode = ViewMode::Detail(key);
                }
            }
            KeyCode::Esc => self.filter.clear(),
            _ => {}
        }
        false
    }

    fn turn_to(&mut self, forward: usize) {
        let now = TopList::ALL.iter().position(|list| *list == self.list).unwrap_or(0);
        self.list = TopList::ALL[(now + forward) % TopList::ALL.len()];
        (self.column, self.reverse, self.selected, self.selected_row) = (0, false, None, 0);
    }

    fn step(&mut self, to: impl FnOnce(usize, usize) -> usize) {
        let all = self.rows();
        let last = all.len().saturating_sub(1);
        self.selected_row = to(self.selected_row, last).min(last);
        self.selected = all.get(self.selected_row).map(|row| row.key);
    }

    fn write_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.mode = ViewMode::Lists,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = ViewMode::Lists;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) if !c.is_control() && self.filter.chars().count() < MAX_FILTER => {
                self.filter.push(c)
            }
            _ => {}
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::observe::Snapshot;
    use crate::observe::tests::{process, qp};

    /// Returns the view of two snapshots of a process with three queue pairs, of which one has failed.
    pub(in crate::top) fn view() -> TopView {
        let mut busy = qp(0x01_0012);
        busy.ended = 1200;
        let mut failed = qp(0x01_0013);
        failed.state = "ERR".to_owned();
        failed.last_error = Some("RETRY_EXC_ERR \u{1b}[2Jafter 7 retries".to_owned());
        let before =
            Snapshot { processes: vec![process(17, vec![qp(0x01_0011), qp(0x01_0012), failed.clone()])] };
        let now = Snapshot { processes: vec![process(17, vec![qp(0x01_0011), busy, failed])] };
        let mut view = TopView::new(false);
        view.take(TopSnapshot::after(&before, now, 1_000_000_000));
        view
    }

    fn numbers(view: &mut TopView) -> Vec<u32> {
        view.rows().iter().map(|row| row.key.2 & 0xff).collect()
    }

    #[test]
    fn rows_are_sorted_reversed_and_filtered_by_keys() {
        let mut view = view();
        assert_eq!(numbers(&mut view), [0x11, 0x12, 0x13]);
        for _ in 0..5 {
            view.handle_key(KeyCode::Char('s'));
        }
        view.handle_key(KeyCode::Char('r'));
        assert_eq!(numbers(&mut view)[0], 0x12, "by sends, downward");
        for key in ['/', 'e', 'x', 'c', '_'] {
            view.handle_key(KeyCode::Char(key));
        }
        assert_eq!(numbers(&mut view), [0x13], "the error holds it");
        view.handle_key(KeyCode::Esc);
        assert_eq!((numbers(&mut view).len(), view.mode), (3, ViewMode::Lists));
    }

    #[test]
    fn the_chosen_row_stays_chosen_and_is_drilled_into() {
        let mut view = view();
        view.handle_key(KeyCode::Char('j'));
        view.rows();
        let chosen = (17, process(17, Vec::new()).device_key(), 0x01_0012);
        assert_eq!(view.selected, Some(chosen));
        view.handle_key(KeyCode::Char('r'));
        view.handle_key(KeyCode::Enter);
        assert_eq!(view.mode, ViewMode::Detail(chosen));
        view.handle_key(KeyCode::Esc);
        for key in [KeyCode::End, KeyCode::Down, KeyCode::Home, KeyCode::Up, KeyCode::PageDown] {
            assert!(!view.handle_key(key));
        }
        assert_eq!(view.selected_row, 2);
        assert!(view.handle_key(KeyCode::Char('q')));
    }

    #[test]
    fn a_frozen_view_keeps_what_it_shows() {
        let mut view = view();
        view.handle_key(KeyCode::Char(' '));
        view.take(TopSnapshot::default());
        assert_eq!(numbers(&mut view).len(), 3);
        view.handle_key(KeyCode::Char(' '));
        view.take(TopSnapshot::default());
        assert!(numbers(&mut view).is_empty() && view.selected.is_none());
        view.handle_key(KeyCode::Enter);
        assert_eq!(view.mode, ViewMode::Lists, "there is nothing to drill into");
    }

    #[test]
    fn the_other_lists_have_their_rows() {
        let mut view = view();
        view.handle_key(KeyCode::Tab);
        assert_eq!(view.rows()[0].cells, ["17", "0", "25", "8", "32", "2", "armed"]);
        view.handle_key(KeyCode::Tab);
        assert_eq!(view.rows()[0].cells, ["17", "1", "25", "16", "64", "4", "basic"]);
        view.handle_key(KeyCode::Tab);
        assert!(view.rows().is_empty());
        view.handle_key(KeyCode::BackTab);
        assert_eq!(view.list, TopList::SharedReceiveQueues);
    }
}
