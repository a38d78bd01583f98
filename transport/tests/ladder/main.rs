//! Ladder tests: one queue pair, a fake host, literal packets in and out. No socket, no clock, no
//! thread; every rung says what goes in and what must come out.

mod kit;
