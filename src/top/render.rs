//! Draws the view on a screen of the terminal's size. Parts without room are cut, and no information is in
//! colors alone.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table, TableState, Wrap};

use super::rows::{TopRow, detail};
use super::view::{TopView, ViewMode};
use crate::observe::{QpRates, quantity};

/// Maximum number of processes that are shown above the list.
const MAX_PROCESSES: usize = 5;

const HELP: &str = "\
q        quit
up, down, j, k, PgUp, PgDn, g, G   choose a row
enter    show all of a queue pair          esc   back, or forget the filter
tab      next list: queue pairs, completion queues, shared receive queues, fault rules
/        show only rows that hold a text   enter ends it
s        sort by the next column           r     reverse
space    freeze the screen, and go on
?        this page, which any key closes

SEND/s, RECV/s  messages    TXB/s, RXB/s  bytes of packets, from the BTH to the ICRC
AGAIN  packets sent again   RNR  RNR NAKs sent and received, both since the beginning
STATE!  it has failed: the line below the list says why; docs/metrics.md has remedies";

/// Draws everything.
pub(super) fn draw(view: &mut TopView, frame: &mut Frame<'_>) {
    let processes = view.look.snapshot.processes.len().min(MAX_PROCESSES) as u16 + 1;
    let parts = [Constraint::Length(1), Constraint::Length(processes), Constraint::Length(1)];
    let below = [Constraint::Min(3), Constraint::Length(1), Constraint::Length(1)];
    let [title, top, heading, body, remark, keys] =
        Layout::vertical(parts.into_iter().chain(below)).areas(frame.area());
    frame.render_widget(Line::from(title_of(view)).style(bold()), title);
    draw_processes(view, frame, top);
    match view.mode {
        ViewMode::Help => {
            frame.render_widget(Line::from("help").style(bold()), heading);
            frame.render_widget(Paragraph::new(HELP), body);
        }
        ViewMode::Detail(key) => {
            frame.render_widget(Line::from("queue pair").style(bold()), heading);
            frame.render_widget(Paragraph::new(detail(&view.look, key)).wrap(Wrap { trim: false }), body);
        }
        ViewMode::Lists | ViewMode::Filter => draw_list(view, frame, heading, body, remark),
    }
    frame.render_widget(Line::from(keys_of(view)).style(reversed()), keys);
}

fn title_of(view: &TopView) -> String {
    let count = view.look.snapshot.processes.len();
    let state = match (&view.trouble, view.frozen, view.waits) {
        (Some(why), _, _) => format!("  {why}"),
        (None, true, _) => "  FROZEN: space goes on".to_owned(),
        (None, false, true) => "  looking".to_owned(),
        (None, false, false) => String::new(),
    };
    format!("pumice top  {count} processes{state}")
}

fn keys_of(view: &TopView) -> String {
    match view.mode {
        ViewMode::Filter => format!("filter: {}_   enter keep  esc forget", view.filter),
        ViewMode::Help => "any key: back".to_owned(),
        ViewMode::Detail(_) => "esc back  space freeze  q quit".to_owned(),
        ViewMode::Lists => {
            "q quit  ? help  enter show  tab list  / filter  s sort  r reverse  space freeze".to_owned()
        }
    }
}

fn draw_processes(view: &TopView, frame: &mut Frame<'_>, area: Rect) {
    let mut lines = vec![
        Line::from(format!(
            "{:>7} {:<14} {:<10} {:>4} {:>6} {:>6} {:>5} {:>5} {:>5} {:>4} {:>6}",
            "PID", "PROGRAM", "TAG", "QPS", "SEND/s", "RECV/s", "TXB/s", "RXB/s", "AGN/s", "DROP", "FAULTS"
        ))
        .style(bold()),
    ];
    let all = view.look.snapshot.processes.iter().zip(&view.look.rates);
    lines.extend(all.take(MAX_PROCESSES).map(|(process, rates)| {
        let cut = |text: &str, most: usize| text.chars().take(most).collect::<String>();
        let name = cut(process.program.as_deref().unwrap_or("?"), 14);
        if !process.answers() {
            return Line::from(format!("{:>7} {name:<14} does not answer", process.pid));
        }
        let QpRates { sends, receives, sent_bytes, received_bytes, repeated, .. } = rates.all;
        let qps = process.objects.as_ref().map_or(0, |objects| objects.totals.qps);
        let [sends, receives, sent, received, again, drops] =
            [sends, receives, sent_bytes, received_bytes, repeated, rates.drops].map(quantity);
        let (pid, tag, faults) = (process.pid, cut(&process.tag(), 10), process.faults_applied());
        Line::from(format!(
            "{pid:>7} {name:<14} {tag:<10} {qps:>4} {sends:>6} {receives:>6} {sent:>5} {received:>5} \
             {again:>5} {drops:>4} {faults:>6}"
        ))
    }));
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_list(view: &mut TopView, frame: &mut Frame<'_>, heading: Rect, body: Rect, remark: Rect) {
    let rows = view.rows();
    let columns = view.list.columns();
    let by = columns.get(view.column).map_or("", |(name, _)| name);
    let downward = if view.reverse { ", downward" } else { "" };
    let filter = if view.filter.is_empty() { String::new() } else { format!(", with \"{}\"", view.filter) };
    let left = left_out(view);
    let title = format!("{} {}{left} by {by}{downward}{filter}", rows.len(), view.list.name());
    frame.render_widget(Line::from(title).style(bold()), heading);
    let names = columns.iter().enumerate().map(|(column, (name, _))| {
        let style = if column == view.column { bold().add_modifier(Modifier::UNDERLINED) } else { bold() };
        Cell::from(Span::styled(*name, style))
    });
    let widths = columns.iter().map(|(_, width)| Constraint::Min(*width));
    let lines = rows.iter().map(|row| TableRow::new(row.cells.clone()).style(style_of(row, view.colors)));
    let table = Table::new(lines, widths)
        .header(TableRow::new(names))
        .row_highlight_style(reversed())
        .column_spacing(1);
    let mut state = TableState::default().with_selected((!rows.is_empty()).then_some(view.selected_row));
    frame.render_stateful_widget(table, body, &mut state);
    if let Some(row) = rows.get(view.selected_row).filter(|row| !row.remark.is_empty()) {
        frame.render_widget(Line::from(row.remark.clone()), remark);
    }
}

/// Says how many queue pairs have no row because their process has too many.
fn left_out(view: &TopView) -> String {
    let objects = view.look.snapshot.processes.iter().filter_map(|process| process.objects.as_ref());
    let left: u32 = objects.map(|objects| objects.qps_left_out()).fold(0, u32::saturating_add);
    if left > 0 { format!(" (and {left} more queue pairs)") } else { String::new() }
}

fn style_of(row: &TopRow, colors: bool) -> Style {
    match (row.bad, colors) {
        (true, true) => Style::new().fg(Color::Red),
        (true, false) => bold(),
        (false, _) => Style::new(),
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn reversed() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::super::view::tests::view;
    use super::*;

    fn shown(view: &mut TopView, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| draw(view, frame)).expect("it is drawn");
        terminal.backend().to_string()
    }

    #[test]
    fn the_list_fits_into_80_columns() {
        let text = shown(&mut view(), 80, 24);
        for part in
            ["pumice top  1 processes", "paced", "3 queue pairs by PID", "0x010012", "1.2k", "ERR!", "RNR"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("s sort  r reverse  space freeze"), "{text}");
    }

    #[test]
    fn the_error_of_the_chosen_row_is_shown_without_what_a_terminal_obeys() {
        let mut view = view();
        view.handle_key(KeyCode::End);
        let text = shown(&mut view, 80, 24);
        assert!(text.contains("RETRY_EXC_ERR ?[2Jafter 7 retries") && !text.contains('\u{1b}'), "{text}");
        view.handle_key(KeyCode::Enter);
        let text = shown(&mut view, 80, 24);
        assert!(text.contains("127.0.0.2") && text.contains("RETRY_EXC_ERR ?[2J"), "{text}");
    }

    #[test]
    fn every_size_and_mode_can_be_drawn() {
        for (width, height) in [(1, 1), (10, 3), (80, 24), (40, 8), (300, 100)] {
            let mut view = view();
            for key in ["?", "x", "/", "a"] {
                shown(&mut view, width, height);
                view.handle_key(KeyCode::Char(key.chars().next().expect("a key")));
            }
            view.handle_key(KeyCode::Esc);
            for _ in 0..4 {
                view.handle_key(KeyCode::Tab);
                shown(&mut view, width, height);
            }
            view.handle_key(KeyCode::Enter);
            shown(&mut view, width, height);
        }
    }
}
