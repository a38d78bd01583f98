//! The policy as a table: each row is a situation, described by inputs and the actions that follow.

use super::rules::{MAX_IDLE_WAKEUPS, RESTRAINT_NS, SHORT_SLEEP_NS, SPIN_NS, WATCH_NS};
use super::*;

/// A line of the table: at `.0` ns the input `.1` comes, and the thread does `.2`.
type TableLine = (u64, PolicyInput, PolicyAction);

struct Row {
    situation: &'static str,
    lines: Vec<TableLine>,
}

fn row(situation: &'static str, lines: impl IntoIterator<Item = TableLine>) -> Row {
    Row { situation, lines: lines.into_iter().collect() }
}

const QUIET: ApplicationActivity = ApplicationActivity { polls: 0, waiters: 0, armed: false, called: false };
const NO_PACKETS: PolicyInput = PolicyInput::Idle { deadline_ns: None, backlog: false };
const UNTIL_WOKEN: PolicyAction = PolicyAction::Sleep { until_ns: FOREVER_NS, for_ns: None };
const LISTEN: PolicyAction = PolicyAction::Listen { for_ns: SILENCE_NS };
const ABSTAIN: PolicyAction = PolicyAction::Abstain { for_ns: TICK_NS };

/// Returns the input of a turn after this many polls.
fn polled(polls: u64) -> PolicyInput {
    PolicyInput::Turn(ApplicationActivity { polls, ..QUIET })
}

fn stands_by(for_ns: u64) -> PolicyAction {
    PolicyAction::StandBy { for_ns }
}

fn listened(polls: u64) -> PolicyInput {
    PolicyInput::Listened { polls, short_of_receives: false }
}

fn woke(slept_ns: u64, packets: bool) -> PolicyInput {
    PolicyInput::Woke { slept_ns, progressed: packets, found: packets }
}

/// Returns the lines of a turn in which the application has polled once more, is silent for a moment, and
/// there are packets or not.
fn peeks(at_ns: u64, polls: u64, found: bool) -> [TableLine; 4] {
    [
        (at_ns, polled(polls), stands_by(TICK_NS)),
        (at_ns, PolicyInput::StandByEnded { polls }, LISTEN),
        (at_ns, listened(polls), PolicyAction::Peek),
        (at_ns, PolicyInput::Peeked { found }, PolicyAction::BeginTurn),
    ]
}

/// Returns the lines from a turn to a sleep, and the wake-up.
fn sleeps(at_ns: u64, turn: PolicyInput, wakes: PolicyInput) -> [TableLine; 4] {
    [
        (at_ns, turn, PolicyAction::CheckReceives),
        (at_ns, PolicyInput::Receives { short: false }, PolicyAction::Drive),
        (at_ns, NO_PACKETS, UNTIL_WOKEN),
        (at_ns, wakes, PolicyAction::BeginTurn),
    ]
}

fn silence_and_polling() -> Vec<Row> {
    vec![
        row(
            "the application is silent: the thread drives, and sleeps until a packet comes",
            sleeps(0, polled(0), woke(SHORT_SLEEP_NS, false)),
        ),
        row("the application polls: the thread stands by", [(0, polled(1), stands_by(TICK_NS))]),
        row(
            "the application spins: the thread stands by for longer, so as not to disturb it",
            [
                (0, polled(SPINNING_POLLS), stands_by(TICK_NS)),
                (0, polled(2 * SPINNING_POLLS + 1), stands_by(SPINNING_TICK_NS)),
            ],
        ),
        row(
            "the number of polls begins anew at 0: it moves nevertheless",
            [(0, polled(u64::MAX), stands_by(SPINNING_TICK_NS)), (0, polled(2), stands_by(TICK_NS))],
        ),
        row(
            "a thread waits for an event and drives: the background thread stands by, polls or not",
            [(0, PolicyInput::Turn(ApplicationActivity { waiters: 1, ..QUIET }), stands_by(TICK_NS))],
        ),
        row(
            "a queue is armed: the application may sleep, so the thread looks soon, however much it polls",
            [
                (
                    0,
                    PolicyInput::Turn(ApplicationActivity { polls: 1, armed: true, ..QUIET }),
                    stands_by(ARMED_TICK_NS),
                ),
                (
                    0,
                    PolicyInput::Turn(ApplicationActivity { polls: 9999, armed: true, ..QUIET }),
                    stands_by(ARMED_TICK_NS),
                ),
            ],
        ),
        row(
            "a queue is armed, and a thread waits for its event by driving: no hurry",
            [(
                0,
                PolicyInput::Turn(ApplicationActivity { waiters: 1, armed: true, ..QUIET }),
                stands_by(TICK_NS),
            )],
        ),
        row(
            "the application calls: the thread takes over although the application polls",
            [(
                0,
                PolicyInput::Turn(ApplicationActivity { polls: 9999, called: true, ..QUIET }),
                PolicyAction::CheckReceives,
            )],
        ),
        row(
            "the application polls again while the thread listens: its packets are left to it",
            [
                (0, polled(1), stands_by(TICK_NS)),
                (0, PolicyInput::StandByEnded { polls: 1 }, LISTEN),
                (0, listened(2), PolicyAction::BeginTurn),
            ],
        ),
    ]
}

fn sleeping() -> Vec<Row> {
    let ready = [
        (0, polled(0), PolicyAction::CheckReceives),
        (0, PolicyInput::Receives { short: false }, PolicyAction::Drive),
    ];
    let sleep = |now_ns, deadline_ns, backlog, until_ns, for_ns| {
        let idle = PolicyInput::Idle { deadline_ns, backlog };
        ready
            .into_iter()
            .chain([(now_ns, idle, PolicyAction::Sleep { until_ns, for_ns })])
            .collect::<Vec<_>>()
    };
    vec![
        row(
            "something was done: the next turn begins",
            ready.into_iter().chain([(0, PolicyInput::Progressed, PolicyAction::BeginTurn)]),
        ),
        row(
            "the engine has a deadline: the thread sleeps until then",
            sleep(100, Some(700), false, 700, Some(600)),
        ),
        row("the deadline is over: the thread does not sleep", sleep(900, Some(700), false, 700, Some(0))),
        row(
            "something waits to be sent: the thread tries again soon",
            sleep(0, Some(9_000_000), true, 9_000_000, Some(BACKLOG_SLEEP_NS)),
        ),
        row(
            "packets come fast: the thread tries again before it sleeps, until another thread wants to run",
            sleeps(0, polled(0), woke(SHORT_SLEEP_NS - 1, true)).into_iter().chain(ready).chain([
                (SPIN_NS - 1, NO_PACKETS, PolicyAction::Yield),
                (SPIN_NS - 1, PolicyInput::Yielded { took_ns: 500 }, PolicyAction::BeginTurn),
                (SPIN_NS - 1, NO_PACKETS, PolicyAction::Yield),
                (SPIN_NS - 1, PolicyInput::Yielded { took_ns: 50_000 }, PolicyAction::BeginTurn),
                (SPIN_NS - 1, NO_PACKETS, UNTIL_WOKEN),
            ]),
        ),
        row(
            "packets came fast, and then none for a while: the thread sleeps",
            sleeps(0, polled(0), woke(SHORT_SLEEP_NS - 1, true)).into_iter().chain([(
                SPIN_NS,
                NO_PACKETS,
                UNTIL_WOKEN,
            )]),
        ),
        row(
            "packets come slowly: the thread sleeps at once",
            sleeps(0, polled(0), woke(SHORT_SLEEP_NS, true)).into_iter().chain([(
                1,
                NO_PACKETS,
                UNTIL_WOKEN,
            )]),
        ),
    ]
}

fn watching() -> Vec<Row> {
    let begins = || peeks(0, 1, true).into_iter().chain(peeks(0, 2, true));
    let in_vain =
        |times| (0..times).flat_map(|k| sleeps(1, polled(3 + u64::from(k)), woke(SHORT_SLEEP_NS, false)));
    vec![
        row(
            "packets are left in the port, but not twice in a row: the thread stands by",
            peeks(0, 1, true).into_iter().chain(peeks(0, 2, false)).chain(peeks(0, 3, true)).chain([(
                0,
                polled(4),
                stands_by(TICK_NS),
            )]),
        ),
        row(
            "packets are left in the port twice in a row: the thread waits for them beside the application",
            begins().chain(in_vain(MAX_IDLE_WAKEUPS)),
        ),
        row(
            "it woke in vain too often: it stands by again",
            begins().chain(in_vain(MAX_IDLE_WAKEUPS)).chain([(1, polled(99), stands_by(TICK_NS))]),
        ),
        row(
            "every other wake-up has packets (the application polls in between): it goes on",
            begins().chain((0..100).flat_map(|k| {
                let turn = |polls, packets| sleeps(1, polled(polls), woke(SHORT_SLEEP_NS, packets));
                turn(3 + 2 * k, true).into_iter().chain(turn(4 + 2 * k, false))
            })),
        ),
        row(
            "it has watched for long: packets left in the port have to prove anew that it is needed",
            begins().chain(sleeps(WATCH_NS, polled(3), woke(SHORT_SLEEP_NS, true))).chain([(
                WATCH_NS,
                polled(4),
                stands_by(TICK_NS),
            )]),
        ),
        row(
            "it watches, and a thread begins to wait for an event by driving: it stands by",
            begins().chain([(
                0,
                PolicyInput::Turn(ApplicationActivity { polls: 3, waiters: 1, ..QUIET }),
                stands_by(TICK_NS),
            )]),
        ),
    ]
}

fn short_of_receives() -> Vec<Row> {
    let short = |at_ns, then| (at_ns, PolicyInput::Receives { short: true }, then);
    vec![
        row(
            "receive requests run out: packets stay in the port for a while, and the thread tries again",
            [
                (0, polled(0), PolicyAction::CheckReceives),
                short(10, ABSTAIN),
                (10, PolicyInput::Abstained, PolicyAction::BeginTurn),
                (10, polled(7), PolicyAction::CheckReceives),
                short(9 + RESTRAINT_NS, ABSTAIN),
                (10, PolicyInput::Abstained, PolicyAction::BeginTurn),
                (10, polled(8), PolicyAction::CheckReceives),
                short(10 + RESTRAINT_NS, PolicyAction::Drive),
            ],
        ),
        row(
            "the application posts receive requests in time: the next shortage may last as long",
            [
                short(10, ABSTAIN),
                (RESTRAINT_NS, PolicyInput::Receives { short: false }, PolicyAction::Drive),
                short(2 * RESTRAINT_NS, ABSTAIN),
            ],
        ),
        row(
            "receive requests run out while the application polls: the thread does not even peek",
            [
                (0, polled(1), stands_by(TICK_NS)),
                (0, PolicyInput::StandByEnded { polls: 1 }, LISTEN),
                (0, PolicyInput::Listened { polls: 1, short_of_receives: true }, PolicyAction::BeginTurn),
            ],
        ),
    ]
}

#[test]
fn the_background_thread_does_what_the_table_says() {
    let rows = [silence_and_polling(), sleeping(), watching(), short_of_receives()].into_iter().flatten();
    for Row { situation, lines } in rows {
        let mut policy = Policy::new(0);
        for (number, (at_ns, input, expected)) in (1..).zip(lines) {
            let action = policy.next(at_ns, input);
            assert_eq!(action, expected, "{situation}: line {number}, {input:?}");
        }
    }
}

#[test]
fn a_call_wakes_the_thread_for_what_it_would_sleep_past() {
    let left = |deadline_ns, backlog| PendingWork { deadline_ns, backlog };
    for (situation, sleeping_until_ns, left, wakes) in [
        ("nothing is left", FOREVER_NS, left(None, false), false),
        ("something is to be sent", 500, left(None, true), true),
        ("a deadline, and the thread sleeps until a packet comes", FOREVER_NS, left(Some(900), false), true),
        ("a deadline before the thread wakes", 500, left(Some(499), false), true),
        ("a deadline when the thread is awake anyway", 500, left(Some(500), false), false),
    ] {
        assert_eq!(call_wakes(sleeping_until_ns, left), wakes, "{situation}");
    }
}

#[test]
fn an_application_that_sleeps_in_this_device_is_not_called_for() {
    assert!(arming_calls(false));
    assert!(!arming_calls(true));
}

#[test]
fn polls_are_dense_while_thousands_come_between_two_turns() {
    let mut policy = Policy::new(7);
    let mut dense_after = |polls| {
        let _ = policy.next(0, polled(polls));
        policy.polls_are_dense()
    };
    assert!(!dense_after(7 + DENSE_POLLS));
    assert!(dense_after(8 + 2 * DENSE_POLLS));
    assert!(!dense_after(9 + 2 * DENSE_POLLS), "it polls now and then");
    assert!(!dense_after(9 + 2 * DENSE_POLLS), "it has stopped");
}
